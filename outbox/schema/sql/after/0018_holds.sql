-- Relays no longer use advisory locks that others can take.
DO $relays$
DECLARE
    here  CONSTANT oid := (SELECT relnamespace FROM pg_class
                            WHERE oid = (SELECT tableoid FROM {schema}.migrations LIMIT 1));
    relay regrole;
BEGIN
    FOR relay IN
        SELECT DISTINCT acl.grantee::regrole
          FROM pg_class AS c, aclexplode(c.relacl) AS acl
         WHERE c.relname = 'parked' AND c.relnamespace = here AND acl.privilege_type = 'INSERT'
           AND acl.grantee NOT IN (0, c.relowner)
    LOOP
        EXECUTE format(
            $grant$GRANT EXECUTE ON FUNCTION {schema}.hold, {schema}.let_go, {schema}.holding
                   TO %s$grant$, relay);
    END LOOP;
END
$relays$;
