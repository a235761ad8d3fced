-- An event without headers, of a usual topic and time, as nearly all are, is let through by one
-- expression. Anything else is judged by the functions that were asked each time before: they
-- alone say what is allowed, and this condition may be stricter. A tenth of the call's time.
DO $writers$
DECLARE
    append CONSTANT text := $function$
CREATE OR REPLACE FUNCTION {schema}.append(
    topic text,
    key bytea,
    value bytea,
    type text,
    id uuid DEFAULT gen_random_uuid(),
    source text DEFAULT 'dovecote',
    subject text DEFAULT NULL,
    "time" timestamptz DEFAULT clock_timestamp(),
    content_type text DEFAULT NULL,
    header_names text[] DEFAULT NULL,
    header_values bytea[] DEFAULT NULL
) RETURNS void
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
-- The secret stays a parameter of the plans, which a session may be shown (debug_print_plan).
SET plan_cache_mode = force_generic_plan
AS $append$
DECLARE
    own_prefix text;
BEGIN
    IF (topic ~ '^[a-zA-Z0-9][a-zA-Z0-9._-]*$' AND length(topic) < 250
            AND NOT starts_with(topic, 'dovecote.') AND type <> '' AND source <> ''
            AND "time" > '1900-01-01 00:00:00+00' AND "time" < '3000-01-01 00:00:00+00'
            AND header_names IS NULL AND header_values IS NULL
            AND current_setting('synchronous_commit') <> 'off') IS NOT TRUE THEN
        -- Until the end of the transaction: an event may be published before an asynchronous
        -- commit is on disk, and a crash of the server would then make the rows vanish, and not
        -- the event.
        IF current_setting('synchronous_commit') = 'off' THEN
            PERFORM set_config('synchronous_commit', 'on', true);
        END IF;
        PERFORM {schema}.require_publishable(topic, type, source, "time"),
                {schema}.require_headers(header_names, header_values);
    END IF;
    IF {schema}.writes_to_wal() THEN
        SELECT c.prefix INTO STRICT own_prefix FROM {schema}.capture AS c;
        PERFORM pg_logical_emit_message(true, own_prefix, {schema}.encoded(
            topic, key, value, type, id, source, subject, "time", content_type,
            header_names, header_values));
    ELSE
        CASE pg_sequence_last_value($leaf${schema}.leaf$leaf$)
        <<inserts>>
        END CASE;
    END IF;
END
$append$;
    $function$;
    one CONSTANT text := $one$
            INSERT INTO <<leaf>>
                ("time", id, topic, type, source, subject, content_type, key, value,
                 header_names, header_values)
            VALUES
                (append."time", append.id, append.topic, append.type,
                 append.source, append.subject, append.content_type, append.key,
                 append.value, append.header_names, append.header_values);$one$;
    inserts text := '';
    branch text;
    leaf text;
BEGIN
    FOR number IN 0..4 LOOP
        branch := format('WHEN %s THEN', number);
        leaf := format($events${schema}.events_%s$events$, number);
        IF number = 4 THEN
            -- No leaf has this number.
            branch := 'ELSE';
            leaf := $events${schema}.events$events$;
        END IF;
        inserts := inserts || branch || replace(one, '<<leaf>>', leaf) || E'\n';
    END LOOP;
    EXECUTE replace(append, '<<inserts>>', inserts);
END
$writers$;
