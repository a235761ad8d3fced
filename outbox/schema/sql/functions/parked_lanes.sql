-- A writer calls this for up to `most` lanes that have a parked event.
CREATE OR REPLACE FUNCTION {schema}.parked_lanes(most int) RETURNS bytea[]
LANGUAGE sql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
-- Another setting would read the backslashes of the literals differently.
SET standard_conforming_strings = on
AS $parked_lanes$
    SELECT coalesce(array_agg(found.lane), '{}')
      FROM (SELECT DISTINCT sha256(p.topic::bytea || E'\\x00'::bytea || p.key) AS lane
              FROM {schema}.parked AS p WHERE p.key IS NOT NULL LIMIT most) AS found
$parked_lanes$;
