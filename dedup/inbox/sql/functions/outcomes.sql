-- Returns what consumers have done with events: a row for each round that one has handled. The number
-- is the event's place in the arrays. `again` is the number of milliseconds after which the handler
-- wants the event again.
CREATE OR REPLACE FUNCTION {schema}.outcomes(consumers text[], ids text[])
RETURNS TABLE (nr int, round int, handled_at timestamptz, again bigint)
LANGUAGE plpgsql STABLE
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $outcomes$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    SELECT e.nr::int, h.round, h.handled_at, h.again
      FROM unnest(outcomes.consumers, outcomes.ids) WITH ORDINALITY AS e (consumer, id, nr)
      JOIN {schema}.handled AS h ON h.consumer = e.consumer AND h.id = e.id
     ORDER BY e.nr, h.round;
END
$outcomes$;
