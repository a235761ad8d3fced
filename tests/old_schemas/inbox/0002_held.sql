-- What held records went through: it outlives the consumer that holds them. The records themselves
-- stay in Kafka, where their offsets are not committed.

CREATE TABLE {schema}.held (
    consumer    text NOT NULL,
    topic       text NOT NULL,
    partition   int NOT NULL,
    "offset"    bigint NOT NULL,
    -- A topic that was deleted and made anew has other events at the same offsets.
    id          text NOT NULL,
    attempt     int NOT NULL,
    round       int NOT NULL,
    -- In milliseconds since 1970, as Kafka has it.
    first_seen  bigint NOT NULL,
    due         bigint NOT NULL,
    error       text,
    origin      text,
    held_at     timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (consumer, topic, partition, "offset")
);

COMMENT ON TABLE {schema}.held IS
    'Records that hold their keys until they are tried again: why, since when, and until when.';

-- Who consumes so far may go on with all of it.
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
