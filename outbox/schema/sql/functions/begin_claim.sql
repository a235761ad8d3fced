-- A relay calls this once its first progress is in Kafka. If progress is missing later, it was
-- lost.
CREATE OR REPLACE FUNCTION {schema}.begin_claim(claimed text) RETURNS void
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $begin_claim$
BEGIN
    PERFORM set_config('synchronous_commit', 'local', true);
    UPDATE {schema}.claims AS c SET began = true, since = now()
      FROM pg_control_system() AS s, pg_database AS d
     WHERE d.datname = current_database()
       AND (c.name, c.system_identifier, c.database) = (claimed, s.system_identifier::text, d.oid)
       AND NOT c.began;
END
$begin_claim$;
