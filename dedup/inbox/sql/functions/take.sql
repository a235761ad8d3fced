-- Records that a consumer handles an event, which is `id@source`. The result is NULL if the event is new; it then
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
    old     bigint;
    into_   int[];
    before  bigint;
    slot_   int;
    waited  bigint;
BEGIN
    IF position('@' IN take.id) = 0 THEN
        -- In the class of errors that means that the server is away: a consumer waits, and burns no
        -- attempt. A row from it would be under the id alone, where no other consumer looks.
        RAISE cannot_connect_now USING MESSAGE =
            'inbox: it was upgraded, and knows events by their source, too: stop this consumer, '
            'and start the version of Dovecote that has upgraded it';
    END IF;
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
    -- Above the slots it says until when somebody waits, in seconds: to read another sequence for it
    -- would cost a tenth of this function.
    SELECT last_value & holding, last_value >> 8 INTO old, waited FROM {schema}.by_id;
    IF old <> 0 THEN
        FOR slot_ IN 0..7 LOOP
            CONTINUE WHEN (old >> slot_) & 1 = 0;
            before := {schema}.handled_before(
                slot_, take.consumer, {schema}.id_alone(take.id), take.round);
            IF before IS NOT NULL THEN
                RETURN before;
            END IF;
        END LOOP;
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
    IF waited > 0 AND waited >= extract(epoch FROM clock_timestamp()) THEN
        PERFORM {schema}.notify_waiting(take.consumer, take.id);
    END IF;
    RETURN NULL;
END
$take$;
