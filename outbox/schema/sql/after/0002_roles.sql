-- Roles that could write may still write. In version 1, USAGE on the schema let a role call its
-- functions.
DO $keep_writers$
DECLARE
    here   oid := (SELECT relnamespace FROM pg_class
                    WHERE oid = (SELECT tableoid FROM {schema}.migrations LIMIT 1));
    entry  text := (SELECT string_agg(oid::regprocedure::text, ', ') FROM pg_proc
                     WHERE pronamespace = here AND proname IN ('append', 'append_many'));
    writer regrole;
BEGIN
    FOR writer IN
        SELECT DISTINCT acl.grantee::regrole
          FROM pg_namespace n, aclexplode(n.nspacl) AS acl
         WHERE n.oid = here AND acl.privilege_type = 'USAGE' AND acl.grantee NOT IN (0, n.nspowner)
    LOOP
        EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO %s', entry, writer);
    END LOOP;
END
$keep_writers$;
