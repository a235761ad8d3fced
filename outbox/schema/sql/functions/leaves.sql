-- Lists the leaves. Leaf -1 is `events` itself, whose rows are older than the leaves.
CREATE OR REPLACE FUNCTION {schema}.leaves()
RETURNS TABLE (number int, heap_bytes bigint, total_bytes bigint, live_rows bigint, written boolean)
LANGUAGE sql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $leaves$
    SELECT leaf.number, pg_relation_size(leaf.oid), pg_total_relation_size(leaf.oid),
           pg_stat_get_live_tuples(leaf.oid),
           leaf.number = pg_sequence_last_value($leaf${schema}.leaf$leaf$)
      FROM (SELECT substring(c.relname FROM '[0-9]+$')::int AS number, c.oid
              FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
             WHERE i.inhparent = $events${schema}.events$events$::regclass
             UNION ALL
            SELECT -1, $events${schema}.events$events$::regclass) AS leaf
     ORDER BY leaf.number
$leaves$;
