-- Says of one slot whether an event was handled, as `take` does of all.
--
-- Each slot has a statement of its own: it needs no routing, and locks no slot that is empty.
CREATE OR REPLACE FUNCTION {schema}.handled_before(slot int, consumer text, id text, round int)
RETURNS bigint
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $handled_before$
#variable_conflict use_column
DECLARE
    before bigint;
BEGIN
    CASE handled_before.slot
        WHEN 0 THEN
            SELECT coalesce(again, -1) INTO before FROM {schema}.handled_0 h
             WHERE h.consumer = handled_before.consumer AND h.id = handled_before.id
               AND h.round = handled_before.round;
        WHEN 1 THEN
            SELECT coalesce(again, -1) INTO before FROM {schema}.handled_1 h
             WHERE h.consumer = handled_before.consumer AND h.id = handled_before.id
               AND h.round = handled_before.round;
        WHEN 2 THEN
            SELECT coalesce(again, -1) INTO before FROM {schema}.handled_2 h
             WHERE h.consumer = handled_before.consumer AND h.id = handled_before.id
               AND h.round = handled_before.round;
        WHEN 3 THEN
            SELECT coalesce(again, -1) INTO before FROM {schema}.handled_3 h
             WHERE h.consumer = handled_before.consumer AND h.id = handled_before.id
               AND h.round = handled_before.round;
        WHEN 4 THEN
            SELECT coalesce(again, -1) INTO before FROM {schema}.handled_4 h
             WHERE h.consumer = handled_before.consumer AND h.id = handled_before.id
               AND h.round = handled_before.round;
        WHEN 5 THEN
            SELECT coalesce(again, -1) INTO before FROM {schema}.handled_5 h
             WHERE h.consumer = handled_before.consumer AND h.id = handled_before.id
               AND h.round = handled_before.round;
        WHEN 6 THEN
            SELECT coalesce(again, -1) INTO before FROM {schema}.handled_6 h
             WHERE h.consumer = handled_before.consumer AND h.id = handled_before.id
               AND h.round = handled_before.round;
        WHEN 7 THEN
            SELECT coalesce(again, -1) INTO before FROM {schema}.handled_7 h
             WHERE h.consumer = handled_before.consumer AND h.id = handled_before.id
               AND h.round = handled_before.round;
    END CASE;
    RETURN before;
END
$handled_before$;
