-- The events table. Services write to it through `append` and `append_many` alone.

CREATE TABLE {schema}.events (
    -- The order within a key, if its writers take a lock in turn before they append. With a
    -- larger CACHE, each session would get a range of numbers, and ranges invert positions.
    position      bigint GENERATED ALWAYS AS IDENTITY (CACHE 1) PRIMARY KEY,
    -- The relay's cursor is a pair of snapshots over this column, never `position > last`.
    xid           xid8 NOT NULL DEFAULT pg_current_xact_id(),
    appended_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    "time"        timestamptz NOT NULL,
    id            uuid NOT NULL,
    topic         text NOT NULL,
    type          text NOT NULL,
    source        text NOT NULL,
    subject       text,
    content_type  text,
    key           bytea,
    value         bytea,
    header_names  text[],
    header_values bytea[]
);

CREATE INDEX events_xid ON {schema}.events (xid);

COMMENT ON TABLE {schema}.events IS
    'Events of committed transactions, on their way to Kafka. Write with append(), never directly.';
