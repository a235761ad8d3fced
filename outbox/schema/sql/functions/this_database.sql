-- Returns the id of this database. In a copy of it, transaction ids stand for other
-- transactions.
CREATE OR REPLACE FUNCTION {schema}.this_database() RETURNS text
LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp
AS $this_database$
    SELECT s.system_identifier || '/' || d.oid
      FROM pg_control_system() AS s, pg_database AS d
     WHERE d.datname = current_database()
$this_database$;
