-- The relay calls this when progress says that a shard is back in the table. It returns true if
-- that is still wanted. The log is left when the last shard is back.
CREATE OR REPLACE FUNCTION {schema}.leave_log(asked xid8, shard int, shards int) RETURNS boolean
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $leave_log$
BEGIN
    -- The relay drops the slots next, and a crash would not bring them back.
    IF current_setting('synchronous_commit') = 'off' THEN
        PERFORM set_config('synchronous_commit', 'on', true);
    END IF;
    UPDATE {schema}.reading AS r
       SET departed = array_append(array_remove(r.departed, shard), shard)
     WHERE r.state = 'leaving' AND r.changed = asked;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    UPDATE {schema}.reading AS r
       SET state = 'table', changed = pg_current_xact_id(), departed = '{}'
     WHERE r.state = 'leaving' AND r.changed = asked AND cardinality(r.departed) >= shards;
    RETURN true;
END
$leave_log$;
