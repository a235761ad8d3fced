-- A writer calls this with transactions, and with the lane of an event that each of them wrote.
-- For each pair the function returns whether nothing is left to publish: every relay has
-- published what the transaction wrote, and nothing of the lane is parked. A lane is a key of a
-- topic, sha256(topic || 0 byte || key); it is NULL for an event without a key.
CREATE OR REPLACE FUNCTION {schema}.drained(transactions xid8[], lanes bytea[]) RETURNS boolean[]
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
-- Another setting would read the backslashes of the literals differently.
SET standard_conforming_strings = on
AS $drained$
DECLARE
    here CONSTANT text := {schema}.this_database();
BEGIN
    IF (cardinality(transactions) = cardinality(lanes)) IS NOT TRUE THEN
        RAISE invalid_parameter_value USING MESSAGE = 'drained: arrays of different lengths';
    END IF;
    PERFORM nextval($asked${schema}.asked$asked$);
    -- One statement has one snapshot, and a relay parks an event before it says that it is drained.
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
