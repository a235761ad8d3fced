-- Events that the broker can never take. They wait here until an operator decides what to do.

CREATE TABLE {schema}.parked (
    -- The outbox name. Two relays may publish one table under two names.
    name          text NOT NULL,
    -- Counts parked events in the order of the stream. Higher numbers than progress says belong to
    -- a batch that failed: the relay reads those events again, and parks them anew. Until then they
    -- are set aside under numbers from 2^40 on.
    number        bigint NOT NULL,
    -- With the id, this identifies the event when the relay reads it again.
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
    -- Later events of this key of this topic are parked after it.
    holds         boolean NOT NULL,
    attempt       int NOT NULL DEFAULT 1,
    -- The command that failed for this event.
    refused_by    bigint,
    parked_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (name, number)
);

CREATE INDEX parked_id ON {schema}.parked (id);
-- Keys have any length, and no B-tree takes long ones.
CREATE INDEX parked_key ON {schema}.parked USING hash (key);

COMMENT ON TABLE {schema}.parked IS
    'Events that cannot be published, and those that wait behind them. See `dovecote relay parked`.';

-- Commands of operators. The active relay carries them out between two batches.
CREATE TABLE {schema}.parked_commands (
    number       bigint GENERATED ALWAYS AS IDENTITY (CACHE 1) PRIMARY KEY,
    name         text NOT NULL,
    action       text NOT NULL CHECK (action IN ('requeue', 'drop')),
    -- The events that hold this key of this topic; without a key, those that hold none ...
    topic        text,
    key          bytea,
    -- ... or the one of this number.
    parked       bigint,
    -- No event that was parked later is dropped, because nobody has seen it.
    up_to        bigint NOT NULL,
    requested_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    requested_by text NOT NULL DEFAULT session_user,
    CHECK (num_nonnulls(parked, topic) = 1)
);

COMMENT ON TABLE {schema}.parked_commands IS
    'Commands for the active relay, in the order of their numbers. Written by `dovecote relay parked`.';
