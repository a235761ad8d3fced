-- How a writer learns that what it wrote has left the outbox: asked rarely, answered by the relays.

ALTER TABLE {schema}.relays
    -- Whatever a transaction wrote that this sees, the relay has published or parked ...
    ADD COLUMN drained pg_snapshot,
    -- ... if it was said in this database: in a copy of it, numbers mean other transactions.
    ADD COLUMN drained_in text;

CREATE FUNCTION {schema}.this_database() RETURNS text
LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp
AS $this_database$
    SELECT s.system_identifier || '/' || d.oid
      FROM pg_control_system() AS s, pg_database AS d
     WHERE d.datname = current_database()
$this_database$;

-- Counts questions. A sequence: relays see that somebody waits, and no row dies of it.
CREATE SEQUENCE {schema}.asked;

-- For writers: of each transaction, and of the key that it wrote an event of, whether nothing is
-- left to be published: every relay has published what the transaction wrote, and nothing of the
-- key is parked. A lane is a key of a topic: sha256(topic || 0 byte || key); NULL: no key.
CREATE FUNCTION {schema}.drained(transactions xid8[], lanes bytea[]) RETURNS boolean[]
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $drained$
DECLARE
    here CONSTANT text := {schema}.this_database();
BEGIN
    IF (cardinality(transactions) = cardinality(lanes)) IS NOT TRUE THEN
        RAISE invalid_parameter_value USING MESSAGE = 'drained: arrays of different lengths';
    END IF;
    PERFORM nextval($asked${schema}.asked$asked$);
    -- One statement, one snapshot: what a relay has parked was there before it says so.
    RETURN coalesce((
        SELECT array_agg(
                   EXISTS (SELECT FROM {schema}.relays)
                   AND NOT EXISTS (
                       SELECT FROM {schema}.relays AS r
                        WHERE (r.drained_in = here
                               AND pg_visible_in_snapshot(w.xid, r.drained)) IS NOT TRUE)
                   AND NOT EXISTS (
                       SELECT FROM {schema}.parked AS p
                        WHERE sha256(p.topic::bytea || E'\\x00'::bytea || p.key) = w.lane)
                   ORDER BY w.nr)
          FROM unnest(transactions, lanes) WITH ORDINALITY AS w (xid, lane, nr)), '{}');
END
$drained$;

CREATE INDEX parked_lane ON {schema}.parked
    USING hash (sha256(topic::bytea || E'\\x00'::bytea || key)) WHERE key IS NOT NULL;

-- For writers: lanes of which something is parked, `most` of them.
CREATE FUNCTION {schema}.parked_lanes(most int) RETURNS bytea[]
LANGUAGE sql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $parked_lanes$
    SELECT coalesce(array_agg(found.lane), '{}')
      FROM (SELECT DISTINCT sha256(p.topic::bytea || E'\\x00'::bytea || p.key) AS lane
              FROM {schema}.parked AS p WHERE p.key IS NOT NULL LIMIT most) AS found
$parked_lanes$;

-- For relays: say what is published (NULL: nothing new), and return how often that was asked for.
CREATE FUNCTION {schema}.confirm_drained(name text, seen pg_snapshot) RETURNS bigint
LANGUAGE sql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $confirm_drained$
    UPDATE {schema}.relays AS r SET drained = $2, drained_in = {schema}.this_database()
     WHERE r.name = $1 AND $2 IS NOT NULL;
    SELECT coalesce(pg_sequence_last_value($asked${schema}.asked$asked$), 0)
$confirm_drained$;

-- Who writes, or relays, so far may go on with all of it.
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
