-- `append` and `append_many` refuse an event that is larger than any broker takes. The relay would
-- have to fetch it first.

-- The most bytes of one event: key, value, headers and texts. This is a setting and not code:
-- `dovecote init outbox --max-event-bytes` replaces the function, and no upgrade does.
CREATE FUNCTION {schema}.max_event_bytes() RETURNS int
LANGUAGE sql IMMUTABLE
AS 'SELECT 16777216';

-- In the log, a number within a transaction and an id do not identify one event. A writer may write
-- the same id again as the first event of another transaction.
ALTER TABLE {schema}.parked ADD COLUMN lsn pg_lsn;

COMMENT ON COLUMN {schema}.parked.lsn IS
    'Of an event from the log: where its transaction commits. Its position is its number in there.';
