-- Lists what is held just now, and the process id of the session that holds it.
CREATE OR REPLACE FUNCTION {schema}.holding() RETURNS TABLE (what text, pid int)
LANGUAGE sql STABLE
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $holding$
    SELECT h.what, h.pid
      FROM {schema}.holds AS h
      JOIN pg_locks AS l ON l.pid = h.pid
     WHERE l.locktype = 'advisory' AND l.granted AND l.mode = 'ExclusiveLock' AND l.objsubid = 1
       AND (l.classid::bigint << 32) | l.objid::bigint = h.key
       AND l.database = (SELECT d.oid FROM pg_database AS d WHERE d.datname = current_database())
       -- Without pg_read_all_stats nothing else of other sessions is shown that a role cannot choose.
       AND NOT EXISTS (SELECT FROM pg_stat_get_activity(h.pid) AS a WHERE a.usesysid <> h.role)
$holding$;
