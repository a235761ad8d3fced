-- The place where the log began belongs to one server. It means nothing in a database that was
-- restored from a dump of another. `emit_many` takes any number of events.
ALTER TABLE {schema}.reading ADD COLUMN begins_in text;
UPDATE {schema}.reading
   SET begins_in = (SELECT c.system_identifier || '/' || d.oid
                      FROM pg_control_system() AS c, pg_database AS d
                     WHERE d.datname = current_database())
 WHERE begins_at IS NOT NULL;

COMMENT ON COLUMN {schema}.reading.begins_in IS
    'Which database begins_at is of: system identifier and oid.';
