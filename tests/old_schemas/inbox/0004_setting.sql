-- The setting in which a transaction keeps the claims that it took events for. Its value is ' 5 7 ',
-- or 'kept' at the end of the transaction. Each schema has a setting of its own.
--
-- The name stays what it is when the database is restored elsewhere, where the schema has another
-- oid: the triggers have the name in their condition.
DO $setting$
DECLARE
    here  CONSTANT oid := $name${schema}$name$::regnamespace;
    -- The triggers of version 3.
    known CONSTANT text := (
        SELECT substring(pg_get_triggerdef(t.oid) FROM 'dovecote[.]claims_[0-9]+')
          FROM pg_trigger AS t
         WHERE t.tgname = 'keep_claims' AND t.tgrelid = $name${schema}.handled_0$name$::regclass);
BEGIN
    EXECUTE format(
        $function$
CREATE FUNCTION {schema}.claims_setting() RETURNS text LANGUAGE sql IMMUTABLE AS %L$function$,
        format('SELECT %L', coalesce(known, 'dovecote.claims_' || here)));
END
$setting$;

-- The handler's transaction calls this when the handler asks for another round. A duplicate
-- that comes later gets the same answer.
CREATE OR REPLACE FUNCTION {schema}.again(consumer text, id text, round int, after bigint) RETURNS void
LANGUAGE sql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $again$
    UPDATE {schema}.handled SET again = $4 WHERE consumer = $1 AND id = $2 AND round = $3;
$again$;

-- Claims a partition for a consumer, and returns the number of the claim.
CREATE OR REPLACE FUNCTION {schema}.claim(consumer text, topic text, partition int) RETURNS bigint
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $claim$
#variable_conflict use_column
DECLARE
    mine   bigint;
    before bigint;
BEGIN
    INSERT INTO {schema}.claims (consumer, topic, partition, claim)
    VALUES ($1, $2, $3, nextval($name${schema}.claim_numbers$name$))
        ON CONFLICT DO NOTHING RETURNING claim INTO mine;
    IF FOUND THEN
        RETURN mine;
    END IF;
    SELECT claim INTO before FROM {schema}.claims c
     WHERE c.consumer = $1 AND c.topic = $2 AND c.partition = $3 FOR UPDATE;
    -- A transaction that is about to commit was first, so the claim waits for it.
    PERFORM pg_advisory_xact_lock(hashtextextended($name${schema}.claims$name$, before));
    UPDATE {schema}.claims c
       SET claim = nextval($name${schema}.claim_numbers$name$), claimed_at = now()
     WHERE c.consumer = $1 AND c.topic = $2 AND c.partition = $3 RETURNING claim INTO mine;
    RETURN mine;
END
$claim$;

-- Checks at commit that nobody has claimed a partition since. A later claim waits only for this
-- moment, so a consumer that pauses holds nobody up.
CREATE OR REPLACE FUNCTION {schema}.keep_claims() RETURNS trigger
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $keep_claims$
DECLARE
    names  text := current_setting({schema}.claims_setting(), true);
    claims bigint[];
    each   bigint;
BEGIN
    IF names = 'kept' THEN
        RETURN NULL;
    ELSIF coalesce(names, '') = '' THEN
        RAISE EXCEPTION USING MESSAGE =
            'inbox: the transaction''s settings were reset, and with them whose it is';
    END IF;
    claims := string_to_array(trim(names), ' ');
    IF cardinality(claims) > 1 THEN
        -- Every transaction locks in the same order.
        claims := ARRAY(SELECT n FROM unnest(claims) AS n ORDER BY n);
    END IF;
    FOREACH each IN ARRAY claims LOOP
        IF current_setting('transaction_isolation') = 'read committed' THEN
            -- This lock is in memory. Postgres would write shared row locks to disk.
            PERFORM pg_advisory_xact_lock_shared(
                hashtextextended($name${schema}.claims$name$, each));
            PERFORM FROM {schema}.claims c WHERE c.claim = each;
        ELSE
            -- An older snapshot does not see a newer claim, but a lock on the row meets it.
            PERFORM FROM {schema}.claims c WHERE c.claim = each FOR SHARE;
        END IF;
        IF NOT FOUND THEN
            RAISE EXCEPTION USING ERRCODE = 'TAKEN', MESSAGE =
                'inbox: another member of the group has claimed the partition meanwhile';
        END IF;
    END LOOP;
    names := set_config({schema}.claims_setting(), 'kept', true);
    RETURN NULL;
END
$keep_claims$;

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
BEGIN
    IF NOT pg_try_advisory_xact_lock(hashtextextended($name${schema}.rotate$name$, 0)) THEN
        RETURN;
    END IF;
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

-- Records that a consumer handles an event. The result is NULL if the event is new; it then
-- counts as handled if the transaction commits. Otherwise it was handled before, and the result
-- is the number of milliseconds after which it was to come again, or -1.
--
-- Each slot has statements of its own: they need no routing, and lock no slot that is empty.
CREATE OR REPLACE FUNCTION {schema}.take(consumer text, id text, round int) RETURNS bigint
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
    -- This comes first: others then know that this transaction, which reads the phase, is at work.
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
        CASE slot_
            WHEN 0 THEN
                SELECT coalesce(again, -1) INTO before FROM {schema}.handled_0 h
                 WHERE h.consumer = take.consumer AND h.id = take.id AND h.round = take.round;
            WHEN 1 THEN
                SELECT coalesce(again, -1) INTO before FROM {schema}.handled_1 h
                 WHERE h.consumer = take.consumer AND h.id = take.id AND h.round = take.round;
            WHEN 2 THEN
                SELECT coalesce(again, -1) INTO before FROM {schema}.handled_2 h
                 WHERE h.consumer = take.consumer AND h.id = take.id AND h.round = take.round;
            WHEN 3 THEN
                SELECT coalesce(again, -1) INTO before FROM {schema}.handled_3 h
                 WHERE h.consumer = take.consumer AND h.id = take.id AND h.round = take.round;
            WHEN 4 THEN
                SELECT coalesce(again, -1) INTO before FROM {schema}.handled_4 h
                 WHERE h.consumer = take.consumer AND h.id = take.id AND h.round = take.round;
            WHEN 5 THEN
                SELECT coalesce(again, -1) INTO before FROM {schema}.handled_5 h
                 WHERE h.consumer = take.consumer AND h.id = take.id AND h.round = take.round;
            WHEN 6 THEN
                SELECT coalesce(again, -1) INTO before FROM {schema}.handled_6 h
                 WHERE h.consumer = take.consumer AND h.id = take.id AND h.round = take.round;
            WHEN 7 THEN
                SELECT coalesce(again, -1) INTO before FROM {schema}.handled_7 h
                 WHERE h.consumer = take.consumer AND h.id = take.id AND h.round = take.round;
        END CASE;
        IF FOUND THEN
            RETURN before;
        END IF;
    END LOOP;
    FOREACH slot_ IN ARRAY into_ LOOP
        CASE slot_
            WHEN 0 THEN
                INSERT INTO {schema}.handled_0 (consumer, id, round)
                VALUES (take.consumer, take.id, take.round) ON CONFLICT DO NOTHING;
            WHEN 1 THEN
                INSERT INTO {schema}.handled_1 (consumer, id, round)
                VALUES (take.consumer, take.id, take.round) ON CONFLICT DO NOTHING;
            WHEN 2 THEN
                INSERT INTO {schema}.handled_2 (consumer, id, round)
                VALUES (take.consumer, take.id, take.round) ON CONFLICT DO NOTHING;
            WHEN 3 THEN
                INSERT INTO {schema}.handled_3 (consumer, id, round)
                VALUES (take.consumer, take.id, take.round) ON CONFLICT DO NOTHING;
            WHEN 4 THEN
                INSERT INTO {schema}.handled_4 (consumer, id, round)
                VALUES (take.consumer, take.id, take.round) ON CONFLICT DO NOTHING;
            WHEN 5 THEN
                INSERT INTO {schema}.handled_5 (consumer, id, round)
                VALUES (take.consumer, take.id, take.round) ON CONFLICT DO NOTHING;
            WHEN 6 THEN
                INSERT INTO {schema}.handled_6 (consumer, id, round)
                VALUES (take.consumer, take.id, take.round) ON CONFLICT DO NOTHING;
            WHEN 7 THEN
                INSERT INTO {schema}.handled_7 (consumer, id, round)
                VALUES (take.consumer, take.id, take.round) ON CONFLICT DO NOTHING;
        END CASE;
        IF NOT FOUND THEN
            CASE slot_
            WHEN 0 THEN
                SELECT coalesce(again, -1) INTO before FROM {schema}.handled_0 h
                 WHERE h.consumer = take.consumer AND h.id = take.id AND h.round = take.round;
            WHEN 1 THEN
                SELECT coalesce(again, -1) INTO before FROM {schema}.handled_1 h
                 WHERE h.consumer = take.consumer AND h.id = take.id AND h.round = take.round;
            WHEN 2 THEN
                SELECT coalesce(again, -1) INTO before FROM {schema}.handled_2 h
                 WHERE h.consumer = take.consumer AND h.id = take.id AND h.round = take.round;
            WHEN 3 THEN
                SELECT coalesce(again, -1) INTO before FROM {schema}.handled_3 h
                 WHERE h.consumer = take.consumer AND h.id = take.id AND h.round = take.round;
            WHEN 4 THEN
                SELECT coalesce(again, -1) INTO before FROM {schema}.handled_4 h
                 WHERE h.consumer = take.consumer AND h.id = take.id AND h.round = take.round;
            WHEN 5 THEN
                SELECT coalesce(again, -1) INTO before FROM {schema}.handled_5 h
                 WHERE h.consumer = take.consumer AND h.id = take.id AND h.round = take.round;
            WHEN 6 THEN
                SELECT coalesce(again, -1) INTO before FROM {schema}.handled_6 h
                 WHERE h.consumer = take.consumer AND h.id = take.id AND h.round = take.round;
            WHEN 7 THEN
                SELECT coalesce(again, -1) INTO before FROM {schema}.handled_7 h
                 WHERE h.consumer = take.consumer AND h.id = take.id AND h.round = take.round;
            END CASE;
            IF slot_ <> into_[1] AND before >= 0 THEN
                PERFORM {schema}.again(take.consumer, take.id, take.round, before);
            END IF;
            RETURN coalesce(before, -1);
        END IF;
    END LOOP;
    RETURN NULL;
END
$take$;

-- Does what `take` does, in the name of a claim.
CREATE OR REPLACE FUNCTION {schema}.take_claimed(consumer text, id text, round int, claim bigint)
RETURNS bigint
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $take_claimed$
DECLARE
    names text := current_setting({schema}.claims_setting(), true);
BEGIN
    IF NOT EXISTS (SELECT FROM {schema}.claims c WHERE c.claim = $4) THEN
        RAISE EXCEPTION USING ERRCODE = 'TAKEN', MESSAGE =
            'inbox: another member of the group has claimed the partition since';
    END IF;
    -- The trigger of the insert reads the setting, so it is set before. (An assignment is faster than
    -- `PERFORM`, which runs a query.)
    IF coalesce(names, '') IN ('', 'kept') THEN
        names := set_config({schema}.claims_setting(), ' ' || $4 || ' ', true);
    ELSIF position(' ' || $4 || ' ' IN names) = 0 THEN
        names := set_config({schema}.claims_setting(), names || $4 || ' ', true);
    END IF;
    RETURN {schema}.take($1, $2, $3);
END
$take_claimed$;

-- Does what `take` does, for a batch. All consumers take events in the same order, so that no
-- two of them wait for each other.
CREATE OR REPLACE FUNCTION {schema}.take_many(consumer text, ids text[], rounds int[]) RETURNS bigint[]
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

-- Does what `take_many` does, each event in the name of a claim.
CREATE OR REPLACE FUNCTION {schema}.take_many_claimed(
    consumer text, ids text[], rounds int[], claims bigint[]
) RETURNS bigint[]
LANGUAGE sql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $take_many_claimed$
    SELECT array_agg(taken.before ORDER BY taken.nr)
      FROM (SELECT sorted.nr,
                   {schema}.take_claimed($1, sorted.id, sorted.round, sorted.claim) AS before
              FROM (SELECT e.id, e.round, e.claim, e.nr
                      FROM unnest($2, $3, $4) WITH ORDINALITY AS e (id, round, claim, nr)
                     ORDER BY e.id, e.round, e.nr OFFSET 0) AS sorted) AS taken;
$take_many_claimed$;
