-- Nothing for PUBLIC: who may write and who may relay is granted, role by role.

-- Whoever could write may go on: so far USAGE on the schema was what opened its functions.
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

-- Which names have published from which database: progress that is missing for one of them was
-- lost, and is no beginning.
CREATE TABLE {schema}.claims (
    name              text NOT NULL,
    system_identifier text NOT NULL,
    database          bigint NOT NULL,
    since             timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (name, system_identifier, database)
);

COMMENT ON TABLE {schema}.claims IS
    'Outbox names that a relay has published under, in the database of that oid on that server.';
