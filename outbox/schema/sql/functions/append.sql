-- Writes one event. Services of every language write through this function and `append_many`.
--
-- One expression lets through an event without headers, of a usual topic, time and size. It may
-- be stricter than the rules. Any other event goes to the `require_...` functions, which alone
-- state what is allowed.
--
-- Each leaf has an INSERT of its own, which Postgres plans once per session. A single INSERT
-- would need a partitioned table that routes it, or a new plan each time.
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
-- Postgres may show a session its plans (debug_print_plan). In a generic plan the secret stays a
-- parameter.
SET plan_cache_mode = force_generic_plan
AS $append$
DECLARE
    own_prefix text;
BEGIN
    IF (topic ~ '^[a-zA-Z0-9][a-zA-Z0-9._-]*$' AND length(topic) < 250
            AND NOT starts_with(topic, 'dovecote.') AND type <> '' AND source <> ''
            AND "time" > '1900-01-01 00:00:00+00' AND "time" < '3000-01-01 00:00:00+00'
            AND header_names IS NULL AND header_values IS NULL
            AND coalesce(octet_length(value)::bigint, 0) + coalesce(octet_length(key), 0)
                + octet_length(type) + octet_length(source) + coalesce(octet_length(subject), 0)
                + coalesce(octet_length(content_type), 0) <= {schema}.max_event_bytes()
            AND current_setting('synchronous_commit') <> 'off') IS NOT TRUE THEN
        -- This holds until the end of the transaction. The relay may publish an event before an
        -- asynchronous commit is on disk, and a crash would then lose the rows but not the event.
        IF current_setting('synchronous_commit') = 'off' THEN
            PERFORM set_config('synchronous_commit', 'on', true);
        END IF;
        PERFORM {schema}.require_publishable(topic, type, source, "time"),
                {schema}.require_headers(header_names, header_values),
                {schema}.require_header_count(cardinality(header_names)),
                {schema}.require_size(
                    coalesce(octet_length(value)::bigint, 0) + coalesce(octet_length(key), 0)
                    + octet_length(type) + octet_length(source)
                    + coalesce(octet_length(subject), 0) + coalesce(octet_length(content_type), 0)
                    + coalesce(pg_column_size(header_names), 0)
                    + coalesce(pg_column_size(header_values), 0));
    END IF;
    IF {schema}.restricts_topics() THEN
        PERFORM {schema}.require_topics(ARRAY[topic]);
    END IF;
    IF {schema}.writes_to_wal() THEN
        SELECT c.prefix INTO STRICT own_prefix FROM {schema}.capture AS c;
        PERFORM pg_logical_emit_message(true, own_prefix, {schema}.encoded(
            topic, key, value, type, id, source, subject, "time", content_type,
            header_names, header_values));
    ELSE
        CASE pg_sequence_last_value($leaf${schema}.leaf$leaf$)
        WHEN 0 THEN
            INSERT INTO {schema}.events_0
                ("time", id, topic, type, source, subject, content_type, key, value,
                 header_names, header_values)
            VALUES
                (append."time", append.id, append.topic, append.type,
                 append.source, append.subject, append.content_type, append.key,
                 append.value, append.header_names, append.header_values);
        WHEN 1 THEN
            INSERT INTO {schema}.events_1
                ("time", id, topic, type, source, subject, content_type, key, value,
                 header_names, header_values)
            VALUES
                (append."time", append.id, append.topic, append.type,
                 append.source, append.subject, append.content_type, append.key,
                 append.value, append.header_names, append.header_values);
        WHEN 2 THEN
            INSERT INTO {schema}.events_2
                ("time", id, topic, type, source, subject, content_type, key, value,
                 header_names, header_values)
            VALUES
                (append."time", append.id, append.topic, append.type,
                 append.source, append.subject, append.content_type, append.key,
                 append.value, append.header_names, append.header_values);
        WHEN 3 THEN
            INSERT INTO {schema}.events_3
                ("time", id, topic, type, source, subject, content_type, key, value,
                 header_names, header_values)
            VALUES
                (append."time", append.id, append.topic, append.type,
                 append.source, append.subject, append.content_type, append.key,
                 append.value, append.header_names, append.header_values);
        ELSE
            -- No leaf has this number.
            INSERT INTO {schema}.events
                ("time", id, topic, type, source, subject, content_type, key, value,
                 header_names, header_values)
            VALUES
                (append."time", append.id, append.topic, append.type,
                 append.source, append.subject, append.content_type, append.key,
                 append.value, append.header_names, append.header_values);
        END CASE;
    END IF;
END
$append$;
