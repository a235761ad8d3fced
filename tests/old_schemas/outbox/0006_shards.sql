-- In how many shards each outbox name is published: two numbers at once would give a key two relays.

CREATE TABLE {schema}.sharding (
    name              text NOT NULL,
    system_identifier text NOT NULL,
    database          bigint NOT NULL,
    shards            int NOT NULL CHECK (shards > 0),
    since             timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (name, system_identifier, database)
);

COMMENT ON TABLE {schema}.sharding IS
    'In how many shards an outbox is published from the database of that oid on that server.';

-- What has been published so far was in one.
INSERT INTO {schema}.sharding (name, system_identifier, database, shards)
SELECT name, system_identifier, database, 1 FROM {schema}.claims;

-- For the relay, before it publishes: in how many shards the outbox is published, which is as many
-- as it names if that was not settled yet. NULL if they are several, and events are in the log: a
-- slot for each has to be made first.
CREATE FUNCTION {schema}.settle_shards(outbox text, names text[]) RETURNS int
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
    -- Relays believe what they read here at once.
    IF current_setting('synchronous_commit') = 'off' THEN
        PERFORM set_config('synchronous_commit', 'on', true);
    END IF;
    IF cardinality(names) > 1 THEN
        -- Who goes over to the log holds this, and looks here.
        PERFORM pg_advisory_xact_lock(7237133304039699558);
        IF (SELECT r.state <> 'table' FROM {schema}.reading AS r) THEN
            RETURN NULL;
        END IF;
    END IF;
    INSERT INTO {schema}.sharding (name, system_identifier, database, shards)
    VALUES (outbox, server, here, cardinality(names))
    ON CONFLICT DO NOTHING;
    IF FOUND AND cardinality(names) > 1 THEN
        -- Nothing goes because one of them has published it, while others have not even begun.
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

ALTER TABLE {schema}.reading
    -- While the log is being left: the shards whose progress says that they are back in the table.
    ADD COLUMN departed int[] NOT NULL DEFAULT '{}',
    -- Where slots begin that were made later than the others, without what they had not sent.
    ADD COLUMN anew jsonb NOT NULL DEFAULT '{}';

DROP FUNCTION {schema}.leave_log(xid8);

-- For the relay, when progress says that a shard of so many is back in the table: true if that is
-- still wanted. When the last one has come, the log is left.
CREATE FUNCTION {schema}.leave_log(asked xid8, shard int, shards int) RETURNS boolean
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $leave_log$
BEGIN
    -- The slots are dropped next, and a crash would not bring them back.
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
