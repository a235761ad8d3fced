-- Which events each consumer has handled, for as long as the retention says.
--
-- A ring of eight tables that take turns: rows go by TRUNCATE of a whole one. Whoever handles an
-- event looks for it in all that hold something, and inserts it into the one of the time. While
-- the turn passes on, it is inserted into both, until no transaction is left that knows of the
-- old one alone: so two transactions with the same event always meet at one unique index,
-- whatever their isolation, and however long they take.

CREATE TABLE {schema}.handled (
    slot       smallint NOT NULL,
    -- The consumer group.
    consumer   text NOT NULL,
    id         text NOT NULL,
    round      int NOT NULL,
    -- In milliseconds, where the handler asked for another round.
    again      bigint,
    handled_at timestamptz NOT NULL DEFAULT now()
) PARTITION BY LIST (slot);

COMMENT ON TABLE {schema}.handled IS
    'Events that were handled, each with the rows of its handler''s own transaction.';

CREATE TABLE {schema}.slots (
    slot  smallint PRIMARY KEY,
    began timestamptz,
    ended timestamptz
);

DO $ring$
BEGIN
    FOR slot IN 0..7 LOOP
        EXECUTE format(
            $ddl$CREATE TABLE {schema}.handled_%1$s PARTITION OF {schema}.handled
                   (PRIMARY KEY (consumer, id, round)) FOR VALUES IN (%1$s)$ddl$, slot);
        EXECUTE format($ddl$ALTER TABLE {schema}.handled_%1$s ALTER slot SET DEFAULT %1$s $ddl$,
                       slot);
        INSERT INTO {schema}.slots VALUES (slot, CASE slot WHEN 0 THEN now() END);
    END LOOP;
END
$ring$;

-- Sequences, for they are read as they are at the moment, even in a transaction whose snapshot is
-- older. Half of `phase`, modulo 8, is the slot of the time; if it is odd the next one is inserted
-- into as well.
CREATE SEQUENCE {schema}.phase MINVALUE 0 START 0;
-- The slots that hold something, one bit each.
CREATE SEQUENCE {schema}.live MINVALUE 0 START 1;
-- All transactions below this one that inserted into a slot of the past are over.
CREATE SEQUENCE {schema}.barrier MINVALUE 0 START 0;
SELECT setval($name${schema}.phase$name$, 0), setval($name${schema}.live$name$, 1),
       setval($name${schema}.barrier$name$, 0);

-- What `barrier` is going to be, for the one phase that it belongs to.
CREATE TABLE {schema}.pending (
    phase   bigint PRIMARY KEY,
    barrier bigint NOT NULL
);

-- Another round was asked for: a copy that comes later is told so. In the handler's transaction.
CREATE FUNCTION {schema}.again(consumer text, id text, round int, after bigint) RETURNS void
LANGUAGE sql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $again$
    UPDATE {schema}.handled SET again = $4 WHERE consumer = $1 AND id = $2 AND round = $3;
$again$;

-- The statements for each slot by themselves: no routing, and no lock on those that hold nothing.
DO $functions$
DECLARE
    take CONSTANT text := $function$
-- NULL: it is new, and handled if the transaction commits. Else it was handled before: -1, or
-- after how many milliseconds it was to come again.
CREATE FUNCTION {schema}.take(consumer text, id text, round int) RETURNS bigint
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $take$
#variable_conflict use_column
DECLARE
    now_at  bigint;
    holding bigint;
    into_   int[];
    before  bigint;
    slot_   int;
BEGIN
    -- First: whoever has read a phase is known to be at work until it ends.
    PERFORM pg_current_xact_id();
    SELECT last_value INTO now_at FROM {schema}.phase;
    SELECT last_value INTO holding FROM {schema}.live;
    into_ := CASE WHEN now_at % 2 = 0 THEN ARRAY[now_at / 2 % 8]
                  ELSE ARRAY[now_at / 2 % 8, (now_at / 2 + 1) % 8] END;
    IF current_setting('transaction_isolation') <> 'read committed'
       AND pg_snapshot_xmin(pg_current_snapshot())::text::bigint
           < (SELECT last_value FROM {schema}.barrier) THEN
        RAISE serialization_failure USING MESSAGE =
            'inbox: this transaction is older than the newest turn of the inbox; try it again';
    END IF;
    FOR slot_ IN 0..7 LOOP
        CONTINUE WHEN (holding >> slot_) & 1 = 0 OR slot_ = ANY (into_);
        CASE slot_<<looks>>
        END CASE;
        IF FOUND THEN
            RETURN before;
        END IF;
    END LOOP;
    FOREACH slot_ IN ARRAY into_ LOOP
        CASE slot_<<inserts>>
        END CASE;
        IF NOT FOUND THEN
            CASE slot_<<looks>>
            END CASE;
            IF slot_ <> into_[1] AND before >= 0 THEN
                PERFORM {schema}.again(take.consumer, take.id, take.round, before);
            END IF;
            RETURN coalesce(before, -1);
        END IF;
    END LOOP;
    RETURN NULL;
END
$take$;$function$;
    look CONSTANT text := $one$
            WHEN %1$s THEN
                SELECT coalesce(again, -1) INTO before FROM {schema}.handled_%1$s h
                 WHERE h.consumer = take.consumer AND h.id = take.id AND h.round = take.round;$one$;
    insert_ CONSTANT text := $one$
            WHEN %1$s THEN
                INSERT INTO {schema}.handled_%1$s (consumer, id, round)
                VALUES (take.consumer, take.id, take.round) ON CONFLICT DO NOTHING;$one$;
BEGIN
    EXECUTE replace(replace(take,
        '<<looks>>', (SELECT string_agg(format(look, n), '' ORDER BY n)
                        FROM generate_series(0, 7) n)),
        '<<inserts>>', (SELECT string_agg(format(insert_, n), '' ORDER BY n)
                          FROM generate_series(0, 7) n));
END
$functions$;

-- For a batch; in one order for everybody, so that no two wait for each other.
CREATE FUNCTION {schema}.take_many(consumer text, ids text[], rounds int[]) RETURNS bigint[]
LANGUAGE sql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $take_many$
    SELECT array_agg(taken.before ORDER BY taken.nr)
      FROM (SELECT sorted.nr, {schema}.take($1, sorted.id, sorted.round) AS before
              FROM (SELECT e.id, e.round, e.nr
                      FROM unnest($2, $3) WITH ORDINALITY AS e (id, round, nr)
                     ORDER BY e.id, e.round, e.nr OFFSET 0) AS sorted) AS taken;
$take_many$;

-- Called once a minute or so by every consumer: passes the turn on, and forgets what is old.
CREATE FUNCTION {schema}.rotate(retention interval) RETURNS void
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
BEGIN
    IF NOT pg_try_advisory_xact_lock(hashtextextended($name${schema}.rotate$name$, 0)) THEN
        RETURN;
    END IF;
    SELECT last_value INTO now_at FROM {schema}.phase;
    current := now_at / 2 % 8;
    next := (current + 1) % 8;
    -- What a call that was rolled back left behind: sequences stay as they were set.
    UPDATE {schema}.slots SET began = coalesce(began, clock_timestamp()), ended = NULL
     WHERE slot = current AND (began IS NULL OR ended IS NOT NULL);
    UPDATE {schema}.slots SET ended = clock_timestamp()
     WHERE began IS NOT NULL AND ended IS NULL AND slot <> current
       AND NOT (slot = next AND now_at % 2 = 1);

    FOR old IN SELECT slot FROM {schema}.slots WHERE ended < clock_timestamp() - retention LOOP
        -- Nobody looks there any more; those who did are gone the next time at the latest.
        PERFORM setval($name${schema}.live$name$, last_value & ~(1::bigint << old.slot))
           FROM {schema}.live;
        BEGIN
            PERFORM set_config('lock_timeout', '5ms', true);
            EXECUTE format($ddl$TRUNCATE {schema}.handled_%s$ddl$, old.slot);
            UPDATE {schema}.slots SET began = NULL, ended = NULL WHERE slot = old.slot;
        EXCEPTION WHEN lock_not_available THEN
            NULL; -- an old transaction still reads it; it holds up nobody
        END;
    END LOOP;

    IF now_at % 2 = 0 THEN
        -- A sixth: what is old waits for the slot's end, and two slots change.
        IF EXISTS (SELECT FROM {schema}.slots
                    WHERE slot = current AND began <= clock_timestamp() - retention / 6)
           AND EXISTS (SELECT FROM {schema}.slots WHERE slot = next AND began IS NULL) THEN
            UPDATE {schema}.slots SET began = clock_timestamp() WHERE slot = next;
            PERFORM setval($name${schema}.live$name$, last_value | (1::bigint << next))
               FROM {schema}.live;
            PERFORM setval($name${schema}.phase$name$, now_at + 1);
        END IF;
    ELSIF NOT EXISTS (SELECT FROM {schema}.pending WHERE phase = now_at) THEN
        -- Taken after the phase was set: whoever read the one before is below it.
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
