-- Callers wait until a consumer has handled an event. A consumer notifies them only of events that
-- somebody waits for, because a transaction that notifies commits under a lock of the whole server.

-- A row is good for seconds, and its caller renews it. After a crash of the server callers register
-- again, so the table needs no log.
CREATE UNLOGGED TABLE {schema}.awaited (
    consumer text NOT NULL,
    id       text NOT NULL,
    until    timestamptz NOT NULL,
    PRIMARY KEY (consumer, id)
);

COMMENT ON TABLE {schema}.awaited IS
    'Events whose handling a caller waits for. A consumer looks here while somebody waits at all.';

-- Until when somebody waits at all is in the sequence `by_id`, in seconds, above its eight slots. A
-- transaction reads a sequence as it is at the moment, even if its snapshot is older.
