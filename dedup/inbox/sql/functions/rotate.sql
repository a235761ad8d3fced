-- Passes the turn on, and forgets old events. Every consumer calls this about once a minute.
CREATE OR REPLACE FUNCTION {schema}.rotate(retention interval) RETURNS void
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $rotate$
#variable_conflict use_column
DECLARE
    now_at  bigint;
    current int;
    next    int;
    old     record;
    newest  bigint;
BEGIN
    -- One at a time. Only our functions can lock this row.
    PERFORM FROM {schema}.slots WHERE slot = 0 FOR UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    -- No slot has begun or ended in the future: the clock was set back since. Otherwise the turn would
    -- stay, and nothing be forgotten, until the clock gets there.
    UPDATE {schema}.slots SET began = clock_timestamp() WHERE began > clock_timestamp();
    UPDATE {schema}.slots SET ended = clock_timestamp() WHERE ended > clock_timestamp();
    -- No transaction is newer than the newest: the database was restored from another cluster, of which
    -- none is left. Otherwise the turn would stay until there are as many here, and transactions at
    -- strict levels would be refused. The snapshot is of after the lock, unless it is of the caller.
    newest := CASE current_setting('transaction_isolation') WHEN 'read committed'
              THEN pg_snapshot_xmax(pg_current_snapshot())::text::bigint END;
    PERFORM setval($name${schema}.barrier$name$, 0) FROM {schema}.barrier WHERE last_value > newest;
    DELETE FROM {schema}.pending WHERE barrier > newest;
    SELECT last_value INTO now_at FROM {schema}.phase;
    current := now_at / 2 % 8;
    next := (current + 1) % 8;
    -- A call that was rolled back left the sequences as it had set them.
    UPDATE {schema}.slots SET began = coalesce(began, clock_timestamp()), ended = NULL
     WHERE slot = current AND (began IS NULL OR ended IS NOT NULL);
    UPDATE {schema}.slots SET ended = clock_timestamp()
     WHERE began IS NOT NULL AND ended IS NULL AND slot <> current
       AND NOT (slot = next AND now_at % 2 = 1);

    FOR old IN SELECT slot FROM {schema}.slots WHERE ended < clock_timestamp() - retention LOOP
        -- From now on nobody reads the slot. Earlier readers are gone by the next call.
        PERFORM setval($name${schema}.live$name$, last_value & ~(1::bigint << old.slot))
           FROM {schema}.live;
        PERFORM setval($name${schema}.by_id$name$, last_value & ~(1::bigint << old.slot))
           FROM {schema}.by_id;
        BEGIN
            PERFORM set_config('lock_timeout', '5ms', true);
            EXECUTE format($ddl$TRUNCATE {schema}.handled_%s$ddl$, old.slot);
            UPDATE {schema}.slots SET began = NULL, ended = NULL WHERE slot = old.slot;
        EXCEPTION WHEN lock_not_available THEN
            NULL; -- an old transaction still reads the slot, and holds nobody up
        END;
    END LOOP;

    IF now_at % 2 = 0 THEN
        -- A turn lasts a sixth of the retention: rows stay until their slot ends, and two slots
        -- change at a time.
        IF EXISTS (SELECT FROM {schema}.slots
                    WHERE slot = current AND began <= clock_timestamp() - retention / 6)
           AND EXISTS (SELECT FROM {schema}.slots WHERE slot = next AND began IS NULL) THEN
            UPDATE {schema}.slots SET began = clock_timestamp() WHERE slot = next;
            PERFORM setval($name${schema}.live$name$, last_value | (1::bigint << next))
               FROM {schema}.live;
            PERFORM setval($name${schema}.phase$name$, now_at + 1);
        END IF;
    ELSIF NOT EXISTS (SELECT FROM {schema}.pending WHERE phase = now_at) THEN
        -- The phase is set already, so a transaction that read the one before is below the barrier.
        DELETE FROM {schema}.pending;
        INSERT INTO {schema}.pending
        VALUES (now_at, pg_snapshot_xmax(pg_current_snapshot())::text::bigint);
    ELSIF EXISTS (SELECT FROM {schema}.pending
                   WHERE phase = now_at
                     AND pg_snapshot_xmin(pg_current_snapshot())::text::bigint >= barrier) THEN
        PERFORM setval($name${schema}.barrier$name$, barrier)
           FROM {schema}.pending WHERE phase = now_at;
        PERFORM setval($name${schema}.phase$name$, now_at + 1);
        UPDATE {schema}.slots SET ended = clock_timestamp() WHERE slot = current;
    END IF;
END
$rotate$;
