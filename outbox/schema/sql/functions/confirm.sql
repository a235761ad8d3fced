-- A relay calls this to record up to where it has published.
CREATE OR REPLACE FUNCTION {schema}.confirm(
    name text, since pg_snapshot, until pg_snapshot, "position" bigint
) RETURNS void
LANGUAGE sql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $confirm$
    INSERT INTO {schema}.relays AS r VALUES ($1, $2, $3, $4, clock_timestamp())
    ON CONFLICT (name) DO UPDATE SET
        (since, until, position, confirmed_at)
        = (excluded.since, excluded.until, excluded.position, excluded.confirmed_at)
$confirm$;
