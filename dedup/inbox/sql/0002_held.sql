-- The history of held records, which outlives the consumer that holds them. The records themselves
-- stay in Kafka, where their offsets are not committed.

CREATE TABLE {schema}.held (
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

COMMENT ON TABLE {schema}.held IS
    'Records that hold their keys until they are tried again: why, since when, and until when.';
