-- The number of shards in which each outbox name is published. With two numbers at once, a key
-- would have two relays.

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

-- So far every outbox was published in one shard.
INSERT INTO {schema}.sharding (name, system_identifier, database, shards)
SELECT name, system_identifier, database, 1 FROM {schema}.claims;

ALTER TABLE {schema}.reading
    -- While relays leave the log: the shards whose progress says that they are back in the table.
    ADD COLUMN departed int[] NOT NULL DEFAULT '{}',
    -- Where slots begin that were made later than the others, without the events not sent before.
    ADD COLUMN anew jsonb NOT NULL DEFAULT '{}';

-- `leave_log` has other arguments from here on.
DROP FUNCTION IF EXISTS {schema}.leave_log(xid8);
