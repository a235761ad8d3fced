-- Empties one leaf, if that loses nothing and nobody has to wait. The function returns
-- `rotated`, or the reason against it (`locked`, `kept`, `unpublished by ...`). `keep` is the
-- least age of the leaf's newest row.
CREATE OR REPLACE FUNCTION {schema}.truncate_leaf(number int, keep interval) RETURNS text
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET lock_timeout = '5ms'
SET enable_seqscan = off
AS $truncate_leaf$
DECLARE
    leaf CONSTANT regclass := CASE WHEN number = -1 THEN $events${schema}.events$events$
                              ELSE format($events${schema}.events_%s$events$, number) END;
    newest timestamptz;
    reader text;
BEGIN
    -- A transaction with a single snapshot does not see the rows that others commit meanwhile.
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE invalid_transaction_state USING
            MESSAGE = 'outbox: leaves are emptied in read committed transactions only';
    END IF;
    -- The first check needs no lock, and spares it where the leaf has to stay.
    EXECUTE format('SELECT appended_at FROM ONLY %s ORDER BY position DESC LIMIT 1', leaf)
    INTO newest;
    IF newest > clock_timestamp() - keep THEN
        RETURN 'kept';
    END IF;
    reader := {schema}.unpublished(leaf);
    IF reader IS NOT NULL THEN
        RETURN 'unpublished by ' || reader;
    END IF;
    BEGIN
        EXECUTE format('LOCK TABLE ONLY %s IN ACCESS EXCLUSIVE MODE', leaf);
    EXCEPTION WHEN lock_not_available THEN
        RETURN 'locked';
    END;
    -- Every transaction that wrote to the leaf is over, because the lock is free. New statements
    -- have new snapshots, and see every row that was ever committed.
    reader := {schema}.unpublished(leaf);
    IF reader IS NOT NULL THEN
        RETURN 'unpublished by ' || reader;
    END IF;
    EXECUTE format('TRUNCATE ONLY %s', leaf);
    -- The commit does not wait for a standby with the lock held. Rows that come back after a
    -- failover are published, and the relay passes them.
    PERFORM set_config('synchronous_commit', 'local', true);
    RETURN 'rotated';
END
$truncate_leaf$;
