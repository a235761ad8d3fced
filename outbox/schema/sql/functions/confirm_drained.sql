-- A relay calls this to record what it has published (NULL: nothing new). The function returns
-- how often writers have asked for that.
CREATE OR REPLACE FUNCTION {schema}.confirm_drained(name text, seen pg_snapshot) RETURNS bigint
LANGUAGE sql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $confirm_drained$
    UPDATE {schema}.relays AS r SET drained = $2, drained_in = {schema}.this_database()
     WHERE r.name = $1 AND $2 IS NOT NULL;
    SELECT coalesce(pg_sequence_last_value($asked${schema}.asked$asked$), 0)
$confirm_drained$;
