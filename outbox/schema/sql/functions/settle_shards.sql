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
    -- `dovecote relay reshard` has the turn already.
    has_turn CONSTANT boolean := EXISTS (
        SELECT FROM {schema}.holding() AS h WHERE h.what = 'capture' AND h.pid = pg_backend_pid());
    is_free boolean;
BEGIN
    IF known IS NOT NULL THEN
        RETURN known;
    END IF;
    -- Relays act on this row at once.
    IF current_setting('synchronous_commit') = 'off' THEN
        PERFORM set_config('synchronous_commit', 'on', true);
    END IF;
    IF cardinality(names) > 1 THEN
        -- A session that switches to the log holds this while it looks in `sharding`.
        -- Relays of several shards that begin together take turns.
        FOR tries IN 1..20 LOOP
            is_free := {schema}.hold('capture');
            EXIT WHEN is_free;
            PERFORM pg_sleep(0.05);
        END LOOP;
        IF NOT is_free THEN
            RAISE lock_not_available USING MESSAGE = format(
                'outbox: session %s changes the capture or the number of shards', (
                    SELECT h.pid FROM {schema}.holding() AS h WHERE h.what = 'capture'));
        ELSIF NOT has_turn THEN
            -- The line stays locked until the end of the transaction, and keeps others out.
            PERFORM {schema}.let_go('capture');
        END IF;
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
