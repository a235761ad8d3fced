-- Names the sessions that have locked rows or tables of this name, for an error about a wait.
CREATE OR REPLACE FUNCTION {schema}.lockers(tables text[]) RETURNS text
LANGUAGE sql STABLE
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $lockers$
    SELECT coalesce(string_agg(DISTINCT format('session %s of role %s (%s)', l.pid, a.usename,
                                               a.application_name), ', '), 'a session that has ended')
      FROM pg_locks AS l JOIN pg_class AS c ON c.oid = l.relation
      LEFT JOIN pg_stat_activity AS a ON a.pid = l.pid
     WHERE l.granted AND l.pid <> pg_backend_pid() AND l.mode <> 'AccessShareLock'
       AND c.relnamespace = $name${schema}$name$::regnamespace AND c.relname = ANY (tables)
$lockers$;
