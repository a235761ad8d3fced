-- The subscriptions of `dovecote push serve`, the last attempts of each, and the reports of its processes.

CREATE TABLE {schema}.subscriptions (
    id         text PRIMARY KEY,
    -- Rises when the specification changes.
    version    bigint NOT NULL DEFAULT 1,
    -- The specification, as the API takes it. Secrets are sealed with a key that is not in the
    -- database.
    spec       jsonb NOT NULL,
    state      text NOT NULL DEFAULT 'active' CHECK (state IN ('active', 'paused', 'disabled')),
    reason     text NOT NULL DEFAULT '',
    since      timestamptz NOT NULL DEFAULT now(),
    created_at timestamptz NOT NULL DEFAULT now()
);

COMMENT ON TABLE {schema}.subscriptions IS
    'Which records of Kafka are pushed to which HTTP endpoint.';

-- Rises with every change. Processes read all subscriptions only then.
CREATE TABLE {schema}.revision (
    one    boolean PRIMARY KEY DEFAULT true CHECK (one),
    number bigint NOT NULL
);
INSERT INTO {schema}.revision (number) VALUES (0);

CREATE TABLE {schema}.counts (
    subscription text PRIMARY KEY REFERENCES {schema}.subscriptions ON DELETE CASCADE,
    delivered    bigint NOT NULL DEFAULT 0,
    -- Attempts that did not succeed.
    failed       bigint NOT NULL DEFAULT 0,
    dead         bigint NOT NULL DEFAULT 0
);

-- The last attempts of each subscription. A process that writes some deletes those beyond the limit.
CREATE TABLE {schema}.attempts (
    id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    subscription text NOT NULL REFERENCES {schema}.subscriptions ON DELETE CASCADE,
    told         jsonb NOT NULL
);
CREATE INDEX ON {schema}.attempts (subscription, id);

-- The last report of each process. After a crash of the server the processes report again.
CREATE UNLOGGED TABLE {schema}.reports (
    process      uuid NOT NULL,
    subscription text NOT NULL,
    at           timestamptz NOT NULL DEFAULT now(),
    told         jsonb NOT NULL,
    PRIMARY KEY (process, subscription)
);

-- Records that hold their keys until they are tried again, as in the inbox: why, and until when.
CREATE TABLE {schema}.held (
    -- The consumer group.
    consumer    text NOT NULL,
    topic       text NOT NULL,
    partition   int NOT NULL,
    "offset"    bigint NOT NULL,
    -- A topic that was deleted and made anew has other events at the same offsets.
    id          text NOT NULL,
    attempt     int NOT NULL,
    round       int NOT NULL,
    -- In milliseconds since 1970, as Kafka counts.
    first_seen  bigint NOT NULL,
    due         bigint NOT NULL,
    error       text,
    origin      text,
    held_at     timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (consumer, topic, partition, "offset")
);
-- Counts every change of the subscriptions, and notifies the processes.
CREATE OR REPLACE FUNCTION {schema}.changed() RETURNS trigger
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $changed$
BEGIN
    UPDATE {schema}.revision SET number = number + 1;
    PERFORM pg_notify('dovecote.push', '');
    RETURN NULL;
END
$changed$;
-- Every change of a subscription is counted.
CREATE TRIGGER changed AFTER INSERT OR UPDATE OR DELETE ON {schema}.subscriptions
    FOR EACH STATEMENT EXECUTE FUNCTION {schema}.changed();
