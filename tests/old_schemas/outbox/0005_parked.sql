-- Events that the broker can never take, until an operator has decided what becomes of them.

CREATE TABLE {schema}.parked (
    -- The outbox as Kafka knows it: two relays may publish one table under two names.
    name          text NOT NULL,
    -- Counts parked events in the order of the stream. Those beyond what progress says were parked
    -- with a batch that came to nothing: they are read again, and parked anew. Until then they are
    -- set aside under numbers from 2^40 on.
    number        bigint NOT NULL,
    -- With the id, what the event is known by when it is read again.
    position      bigint NOT NULL,
    id            uuid NOT NULL,
    "time"        timestamptz NOT NULL,
    topic         text NOT NULL,
    type          text NOT NULL,
    source        text NOT NULL,
    subject       text,
    content_type  text,
    key           bytea,
    value         bytea,
    header_names  text[],
    header_values bytea[],
    code          text NOT NULL,
    reason        text NOT NULL,
    -- Later events of this key of this topic are parked behind it.
    holds         boolean NOT NULL,
    attempt       int NOT NULL DEFAULT 1,
    -- The command that came to nothing for it.
    refused_by    bigint,
    parked_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (name, number)
);

CREATE INDEX parked_id ON {schema}.parked (id);
-- Of any length, which no B-tree takes.
CREATE INDEX parked_key ON {schema}.parked USING hash (key);

COMMENT ON TABLE {schema}.parked IS
    'Events that cannot be published, and those that wait behind them. See `dovecote parked`.';

-- What operators ask for; the active relay carries it out between two batches.
CREATE TABLE {schema}.parked_commands (
    number       bigint GENERATED ALWAYS AS IDENTITY (CACHE 1) PRIMARY KEY,
    name         text NOT NULL,
    action       text NOT NULL CHECK (action IN ('requeue', 'drop')),
    -- The events that hold this key of this topic; without a key, those that hold none ...
    topic        text,
    key          bytea,
    -- ... or the one of this number.
    parked       bigint,
    -- Nothing that was parked later is dropped: nobody has seen it.
    up_to        bigint NOT NULL,
    requested_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    requested_by text NOT NULL DEFAULT session_user,
    CHECK (num_nonnulls(parked, topic) = 1)
);

COMMENT ON TABLE {schema}.parked_commands IS
    'Commands for the active relay, in the order of their numbers. Written by `dovecote parked`.';
