-- Roles that consume get the rights to the new table.
DO $keep_roles$
DECLARE
    here  oid := (SELECT relnamespace FROM pg_class
                   WHERE oid = (SELECT tableoid FROM {schema}.migrations LIMIT 1));
    given record;
BEGIN
    FOR given IN
        SELECT DISTINCT acl.grantee::regrole AS role
          FROM pg_proc p, aclexplode(p.proacl) AS acl
         WHERE p.pronamespace = here AND p.proname = 'take'
           AND acl.privilege_type = 'EXECUTE' AND acl.grantee NOT IN (0, p.proowner)
    LOOP
        EXECUTE format(
            $grant$GRANT SELECT, INSERT, UPDATE, DELETE ON {schema}.held TO %s$grant$, given.role);
    END LOOP;
END
$keep_roles$;
