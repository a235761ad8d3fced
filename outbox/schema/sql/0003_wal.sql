-- After `dovecote init outbox --capture wal`, writers write events to the write-ahead log alone.

CREATE TABLE {schema}.capture (
    one    boolean PRIMARY KEY DEFAULT true CHECK (one),
    -- Any role may write messages to the log. This prefix tells ours from forged ones.
    prefix text NOT NULL DEFAULT 'dovecote/' || replace(gen_random_uuid()::text, '-', '')
);

INSERT INTO {schema}.capture DEFAULT VALUES;

COMMENT ON TABLE {schema}.capture IS
    'The secret of events in the write-ahead log. Who can read it can forge events.';

CREATE TABLE {schema}.reading (
    one       boolean PRIMARY KEY DEFAULT true CHECK (one),
    -- 'leaving': events are in the log until no transaction is left that may write to it.
    state     text NOT NULL DEFAULT 'table' CHECK (state IN ('table', 'wal', 'leaving')),
    -- A new value for each time that the state is entered.
    changed   xid8 NOT NULL DEFAULT pg_current_xact_id(),
    -- Where the newest slot began, and which rows of the table were committed before.
    begins_at pg_lsn,
    before    pg_snapshot
);

INSERT INTO {schema}.reading DEFAULT VALUES;

COMMENT ON TABLE {schema}.reading IS
    'Where the relay reads events: in the table, or in the write-ahead log.';

-- Whether events are written to the log. This is a setting and not code: `dovecote init outbox --capture`
-- replaces the function, and no upgrade does. As a constant it costs the functions that ask
-- nothing, and Postgres plans them anew when it changes.
CREATE FUNCTION {schema}.writes_to_wal() RETURNS boolean
LANGUAGE sql IMMUTABLE
AS 'SELECT false';
