-- Relays no longer write to `claims` themselves.
DO $relays$
DECLARE
    here  CONSTANT oid := (SELECT relnamespace FROM pg_class
                            WHERE oid = (SELECT tableoid FROM {schema}.migrations LIMIT 1));
    added text;
    relay regrole;
BEGIN
    added := (SELECT string_agg(oid::regprocedure::text, ', ') FROM pg_proc
               WHERE pronamespace = here AND proname IN ('renew_claim', 'begin_claim'));
    FOR relay IN
        SELECT DISTINCT acl.grantee::regrole
          FROM pg_class AS c, aclexplode(c.relacl) AS acl
         WHERE c.relname = 'claims' AND c.relnamespace = here AND acl.privilege_type = 'INSERT'
           AND acl.grantee NOT IN (0, c.relowner)
    LOOP
        EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO %s', added, relay);
        EXECUTE format('REVOKE INSERT ON %s.claims FROM %s', here::regnamespace, relay);
        EXECUTE format('GRANT SELECT ON %s TO %s', format('%s.identity', here::regnamespace), relay);
    END LOOP;
END
$relays$;
