-- Roles that write or relay get the rights to the new functions.
DO $keep_roles$
DECLARE
    here  oid := (SELECT relnamespace FROM pg_class
                   WHERE oid = (SELECT tableoid FROM {schema}.migrations LIMIT 1));
    given record;
BEGIN
    FOR given IN
        SELECT DISTINCT acl.grantee::regrole AS role, p.proname = 'append' AS writes
          FROM pg_proc p, aclexplode(p.proacl) AS acl
         WHERE p.pronamespace = here AND p.proname IN ('append', 'confirm')
           AND acl.privilege_type = 'EXECUTE' AND acl.grantee NOT IN (0, p.proowner)
    LOOP
        IF given.writes THEN
            EXECUTE format(
                $grant$GRANT EXECUTE ON FUNCTION {schema}.drained, {schema}.parked_lanes TO %s$grant$,
                given.role);
        ELSE
            EXECUTE format(
                $grant$GRANT EXECUTE ON FUNCTION {schema}.confirm_drained TO %s$grant$,
                given.role);
            EXECUTE format($grant$GRANT SELECT ON {schema}.relays TO %s$grant$, given.role);
        END IF;
    END LOOP;
END
$keep_roles$;
