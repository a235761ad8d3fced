-- Returns how versions before 5 wrote an event: its id alone. The place of a record had the name of
-- its topic, which is the source of an event without an id.
CREATE OR REPLACE FUNCTION {schema}.id_alone(event text) RETURNS text
LANGUAGE sql IMMUTABLE
SET search_path = pg_catalog, pg_temp
AS $id_alone$
    SELECT CASE WHEN event ~ '^[A-Za-z0-9_-]{22}/[0-9]+/[0-9]+@[^@]+$'
                THEN split_part(event, '@', 2) || substr(split_part(event, '@', 1), 23)
                ELSE substring(event FROM '^(.*)@[^@]*$') END
$id_alone$;
