-- Subscriptions of `dovecote push`, what was tried last for each, and what its processes say.

CREATE TABLE {schema}.subscriptions (
    id         text PRIMARY KEY,
    -- Rises when what it says changes.
    version    bigint NOT NULL DEFAULT 1,
    -- As the API takes it; secrets are sealed with a key that is not in the database.
    spec       jsonb NOT NULL,
    state      text NOT NULL DEFAULT 'active' CHECK (state IN ('active', 'paused', 'disabled')),
    reason     text NOT NULL DEFAULT '',
    since      timestamptz NOT NULL DEFAULT now(),
    created_at timestamptz NOT NULL DEFAULT now()
);

COMMENT ON TABLE {schema}.subscriptions IS
    'Which records of Kafka are pushed to which HTTP endpoint.';

-- Rises with every change, so that processes ask for all of them only then.
CREATE TABLE {schema}.revision (
    one    boolean PRIMARY KEY DEFAULT true CHECK (one),
    number bigint NOT NULL
);
INSERT INTO {schema}.revision (number) VALUES (0);

CREATE FUNCTION {schema}.changed() RETURNS trigger
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

CREATE TRIGGER changed AFTER INSERT OR UPDATE OR DELETE ON {schema}.subscriptions
    FOR EACH STATEMENT EXECUTE FUNCTION {schema}.changed();

CREATE TABLE {schema}.counts (
    subscription text PRIMARY KEY REFERENCES {schema}.subscriptions ON DELETE CASCADE,
    delivered    bigint NOT NULL DEFAULT 0,
    -- Attempts that did not succeed.
    failed       bigint NOT NULL DEFAULT 0,
    dead         bigint NOT NULL DEFAULT 0
);

-- The last ones of each subscription; whoever writes some takes away those that are too many.
CREATE TABLE {schema}.attempts (
    id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    subscription text NOT NULL REFERENCES {schema}.subscriptions ON DELETE CASCADE,
    told         jsonb NOT NULL
);
CREATE INDEX ON {schema}.attempts (subscription, id);

-- What each process said last. After a crash of the server they just say it again.
CREATE UNLOGGED TABLE {schema}.reports (
    process      uuid NOT NULL,
    subscription text NOT NULL,
    at           timestamptz NOT NULL DEFAULT now(),
    told         jsonb NOT NULL,
    PRIMARY KEY (process, subscription)
);

-- As the inbox has it: records that hold their keys until they are tried again, why, and until when.
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
    -- In milliseconds since 1970, as Kafka has it.
    first_seen  bigint NOT NULL,
    due         bigint NOT NULL,
    error       text,
    origin      text,
    held_at     timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (consumer, topic, partition, "offset")
);
