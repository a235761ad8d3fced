-- A caller that listens calls this to be notified of events for some milliseconds. Transactions that
-- were at work before it committed may have looked for callers earlier.
CREATE OR REPLACE FUNCTION {schema}.await_events(consumers text[], ids text[], lease bigint)
RETURNS void
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $await_events$
#variable_conflict use_column
DECLARE
    until_ CONSTANT timestamptz :=
        clock_timestamp() + least(await_events.lease, 60000) * interval '1 millisecond';
BEGIN
    DELETE FROM {schema}.awaited WHERE (consumer, id) IN (
        SELECT a.consumer, a.id FROM {schema}.awaited a WHERE a.until < clock_timestamp()
         LIMIT 1000 FOR UPDATE SKIP LOCKED);
    -- All callers go through the rows in the same order, so that no two of them wait for each other.
    INSERT INTO {schema}.awaited AS a
    SELECT DISTINCT e.consumer, e.id, until_
      FROM unnest(await_events.consumers, await_events.ids) AS e (consumer, id)
     ORDER BY e.consumer, e.id
    ON CONFLICT (consumer, id) DO UPDATE SET until = greatest(a.until, excluded.until);
    -- The low bits are the slots. If `rotate` writes the sequence at the same moment, one of the two is
    -- lost. The caller's next call repeats it; a slot that stays is read and found empty.
    PERFORM setval($name${schema}.by_id$name$,
        (greatest(last_value >> 8, ceil(extract(epoch FROM until_))::bigint) << 8)
        | (last_value & 255)) FROM {schema}.by_id;
END
$await_events$;
