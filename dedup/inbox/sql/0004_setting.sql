-- The setting in which a transaction keeps the claims that it took events for. Its value is ' 5 7 ',
-- or 'kept' at the end of the transaction. Each schema has a setting of its own.
--
-- The name stays what it is when the database is restored elsewhere, where the schema has another
-- oid: the triggers have the name in their condition.
DO $setting$
DECLARE
    here  CONSTANT oid := $name${schema}$name$::regnamespace;
    -- The triggers of version 3.
    known CONSTANT text := (
        SELECT substring(pg_get_triggerdef(t.oid) FROM 'dovecote[.]claims_[0-9]+')
          FROM pg_trigger AS t
         WHERE t.tgname = 'keep_claims' AND t.tgrelid = $name${schema}.handled_0$name$::regclass);
BEGIN
    EXECUTE format(
        $function$
CREATE FUNCTION {schema}.claims_setting() RETURNS text LANGUAGE sql IMMUTABLE AS %L$function$,
        format('SELECT %L', coalesce(known, 'dovecote.claims_' || here)));
END
$setting$;
