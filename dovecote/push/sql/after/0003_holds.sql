-- Roles that serve get the rights to the new functions.
DO $roles$
DECLARE
    here CONSTANT oid := (SELECT relnamespace FROM pg_class
                           WHERE oid = (SELECT tableoid FROM {schema}.migrations LIMIT 1));
    role regrole;
BEGIN
    FOR role IN
        SELECT DISTINCT acl.grantee::regrole
          FROM pg_class AS c, aclexplode(c.relacl) AS acl
         WHERE c.relname = 'subscriptions' AND c.relnamespace = here
           AND acl.privilege_type = 'UPDATE' AND acl.grantee NOT IN (0, c.relowner)
    LOOP
        EXECUTE format(
            $grant$GRANT EXECUTE ON FUNCTION {schema}.hold, {schema}.let_go, {schema}.holding
                   TO %s$grant$, role);
    END LOOP;
END
$roles$;
