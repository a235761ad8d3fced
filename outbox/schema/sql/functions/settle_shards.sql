-- The relay calls this before it publishes. The function returns in how many shards the outbox
-- is published; the first relay to ask settles that by the names that it gives. The result is
-- NULL if there are several names and events are in the log, because each shard needs a slot
-- first.
CREATE OR REPLACE FUNCTION {schema}.settle_shards(outbox text, names text[]) RETURNS int
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $settle_shards$
DECLARE
    server CONSTANT text := (SELECT s.system_identifier::text FROM pg_control_system() AS s);
    here CONSTANT bigint := (SELECT oid::bigint FROM pg_database WHERE datname = current_database());
    known int := (SELECT s.shards FROM {schema}.sharding AS s
                   WHERE (s.name, s.system_identifier, s.database) = (outbox, server, here));
BEGIN
    IF known IS NOT NULL THEN
        RETURN known;
    END IF;
    -- Relays act on this row at once.
    IF current_setting('synchronous_commit') = 'off' THEN
        PERFORM set_config('synchronous_commit', 'on', true);
    END IF;
    IF cardinality(names) > 1 THEN
        -- A session that switches to the log holds this lock while it looks in `sharding`.
        PERFORM pg_advisory_xact_lock(7237133304039699558);
        IF (SELECT r.state <> 'table' FROM {schema}.reading AS r) THEN
            RETURN NULL;
        END IF;
    END IF;
    INSERT INTO {schema}.sharding (name, system_identifier, database, shards)
    VALUES (outbox, server, here, cardinality(names))
    ON CONFLICT DO NOTHING;
    IF FOUND AND cardinality(names) > 1 THEN
        -- No row may go because one shard has published it, while others have not even begun.
        INSERT INTO {schema}.relays AS r (name, since, position, confirmed_at)
        SELECT shard, '1:1:', 0, clock_timestamp() FROM unnest(names) AS shard
        ON CONFLICT (name) DO UPDATE SET
            (since, until, position, confirmed_at)
            = (excluded.since, NULL, 0, excluded.confirmed_at);
    END IF;
    RETURN (SELECT s.shards FROM {schema}.sharding AS s
             WHERE (s.name, s.system_identifier, s.database) = (outbox, server, here));
END
$settle_shards$;
