-- The condition holds the name of the setting as a constant, because Postgres tests it for every row.
DO $triggers$
BEGIN
    FOR slot IN 0..7 LOOP
        EXECUTE format(
            $trigger$CREATE CONSTRAINT TRIGGER keep_claims AFTER INSERT ON {schema}.handled_%s
                     DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
                     WHEN (current_setting(%L, true) <> '')
                     EXECUTE FUNCTION {schema}.keep_claims()$trigger$,
            slot, {schema}.claims_setting());
    END LOOP;
END
$triggers$;

-- Roles that consume get the rights to the new functions.
DO $keep_roles$
DECLARE
    here  oid := $name${schema}$name$::regnamespace;
    given record;
BEGIN
    FOR given IN
        SELECT DISTINCT acl.grantee::regrole AS role
          FROM pg_proc p, aclexplode(p.proacl) AS acl
         WHERE p.pronamespace = here AND p.proname = 'take'
           AND acl.privilege_type = 'EXECUTE' AND acl.grantee NOT IN (0, p.proowner)
    LOOP
        EXECUTE format(
            $grant$GRANT EXECUTE ON FUNCTION {schema}.claim, {schema}.take_claimed,
                   {schema}.take_many_claimed TO %s$grant$, given.role);
    END LOOP;
END
$keep_roles$;
