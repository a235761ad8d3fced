-- Writes many events in one call. Event i takes the next header_counts[i] of header_names and
-- header_values.
--
-- The SELECT lists unnest arrays beside each other, because Postgres then hands on row by row.
-- It would first store all rows of `FROM unnest(a, b, ...)`.
CREATE OR REPLACE FUNCTION {schema}.append_many(
    topics text[],
    keys bytea[],
    "values" bytea[],
    types text[],
    ids uuid[],
    sources text[],
    subjects text[],
    times timestamptz[],
    content_types text[],
    header_counts int[] DEFAULT NULL,
    header_names text[] DEFAULT NULL,
    header_values bytea[] DEFAULT NULL
) RETURNS void
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
-- With plans that Postgres chose itself, one event took twice as long to reach the log.
SET plan_cache_mode = force_generic_plan
AS $append_many$
DECLARE
    own_prefix text;
BEGIN
    -- This holds until the end of the transaction. The relay may publish an event before an
    -- asynchronous commit is on disk, and a crash would then lose the rows but not the event.
    IF current_setting('synchronous_commit') = 'off' THEN
        PERFORM set_config('synchronous_commit', 'on', true);
    END IF;
    -- unnest() fills a shorter array up with NULL, and a key could silently vanish.
    IF (cardinality(topics) = ALL (ARRAY[
            cardinality(keys), cardinality("values"), cardinality(types), cardinality(ids),
            cardinality(sources), cardinality(subjects), cardinality(times),
            cardinality(content_types), coalesce(cardinality(header_counts), cardinality(topics))
        ])) IS NOT TRUE THEN
        RAISE invalid_parameter_value USING MESSAGE = 'append_many: arrays of different lengths';
    END IF;
    PERFORM {schema}.require_publishable(e.topic, e.type, e.source, e.earliest),
            {schema}.require_publishable(e.topic, e.type, e.source, e.latest)
       FROM (SELECT topic, type, source, max("time") AS latest,
                    -- An aggregate skips NULL.
                    CASE WHEN count("time") = count(*) THEN min("time") END AS earliest
               FROM (SELECT unnest(topics) AS topic, unnest(types) AS type,
                            unnest(sources) AS source, unnest(times) AS "time") AS each
              GROUP BY topic, type, source) AS e;
    PERFORM {schema}.require_headers(header_names, header_values),
            {schema}.require_header_count((SELECT max(own) FROM unnest(header_counts) AS own));
    IF header_counts IS NULL AND cardinality(header_names) > 0 OR header_counts IS NOT NULL AND (
        SELECT (coalesce(sum(own), 0)
                = ALL (ARRAY[cardinality(header_names), cardinality(header_values)])
                AND coalesce(min(own), 0) >= 0 AND count(own) = count(*)) IS NOT TRUE
          FROM unnest(header_counts) AS own
    ) THEN
        RAISE invalid_parameter_value USING MESSAGE =
            'append_many: header_counts do not add up to header_names and header_values';
    END IF;
    -- The events take their headers from element 1 on.
    IF array_lower(header_names, 1) <> 1 OR array_lower(header_values, 1) <> 1 THEN
        RAISE invalid_parameter_value USING MESSAGE =
            'append_many: header_names and header_values must have their first element at 1';
    END IF;
    -- All events together are rarely large enough for one of them to exceed the limit.
    IF pg_column_size(keys)::bigint + pg_column_size("values") + pg_column_size(types)
            + pg_column_size(sources) + pg_column_size(subjects) + pg_column_size(content_types)
            + coalesce(pg_column_size(header_names), 0)
            + coalesce(pg_column_size(header_values), 0) > {schema}.max_event_bytes() THEN
        PERFORM {schema}.require_size(
                    coalesce(octet_length(e."value")::bigint, 0) + coalesce(octet_length(e.key), 0)
                    + octet_length(e.type) + octet_length(e.source)
                    + coalesce(octet_length(e.subject), 0)
                    + coalesce(octet_length(e.content_type), 0)
                    + CASE WHEN e.own > 0 THEN
                        pg_column_size(header_names[e.last - e.own + 1 : e.last])
                        + pg_column_size(header_values[e.last - e.own + 1 : e.last])
                      ELSE 0 END)
           FROM (SELECT u.*, sum(u.own) OVER (ORDER BY u.nr)::int AS last
                   FROM (SELECT generate_series(1, cardinality(ids)) AS nr,
                                unnest(keys) AS key, unnest("values") AS "value",
                                unnest(types) AS type, unnest(sources) AS source,
                                unnest(subjects) AS subject,
                                unnest(content_types) AS content_type,
                                unnest(header_counts) AS own) AS u) AS e;
    END IF;
    IF {schema}.restricts_topics() THEN
        PERFORM {schema}.require_topics(topics);
    END IF;
    IF {schema}.writes_to_wal() THEN
        SELECT c.prefix INTO STRICT own_prefix FROM {schema}.capture AS c;
        PERFORM {schema}.emit_many(own_prefix, topics, keys, "values", types, ids, sources,
            subjects, times, content_types, header_counts, header_names, header_values);
    ELSE
        CASE pg_sequence_last_value($leaf${schema}.leaf$leaf$)
        WHEN 0 THEN
            IF header_counts IS NULL THEN
                INSERT INTO {schema}.events_0
                    ("time", id, topic, type, source, subject, content_type, key, value)
                SELECT unnest(times), unnest(ids), unnest(topics), unnest(types), unnest(sources),
                       unnest(subjects), unnest(content_types), unnest(keys), unnest("values");
            ELSE
                INSERT INTO {schema}.events_0
                    ("time", id, topic, type, source, subject, content_type, key, value,
                     header_names, header_values)
                SELECT e."time", e.id, e.topic, e.type, e.source, e.subject, e.content_type,
                       e.key, e.value,
                       append_many.header_names[e.last - e.own + 1 : e.last],
                       append_many.header_values[e.last - e.own + 1 : e.last]
                  FROM (SELECT u.*, sum(u.own) OVER (ORDER BY u.nr)::int AS last
                          FROM (SELECT generate_series(1, cardinality(ids)) AS nr,
                                       unnest(times) AS "time", unnest(ids) AS id,
                                       unnest(topics) AS topic, unnest(types) AS type,
                                       unnest(sources) AS source, unnest(subjects) AS subject,
                                       unnest(content_types) AS content_type, unnest(keys) AS key,
                                       unnest("values") AS value,
                                       unnest(header_counts) AS own) AS u) AS e
                 ORDER BY e.nr;
            END IF;
        WHEN 1 THEN
            IF header_counts IS NULL THEN
                INSERT INTO {schema}.events_1
                    ("time", id, topic, type, source, subject, content_type, key, value)
                SELECT unnest(times), unnest(ids), unnest(topics), unnest(types), unnest(sources),
                       unnest(subjects), unnest(content_types), unnest(keys), unnest("values");
            ELSE
                INSERT INTO {schema}.events_1
                    ("time", id, topic, type, source, subject, content_type, key, value,
                     header_names, header_values)
                SELECT e."time", e.id, e.topic, e.type, e.source, e.subject, e.content_type,
                       e.key, e.value,
                       append_many.header_names[e.last - e.own + 1 : e.last],
                       append_many.header_values[e.last - e.own + 1 : e.last]
                  FROM (SELECT u.*, sum(u.own) OVER (ORDER BY u.nr)::int AS last
                          FROM (SELECT generate_series(1, cardinality(ids)) AS nr,
                                       unnest(times) AS "time", unnest(ids) AS id,
                                       unnest(topics) AS topic, unnest(types) AS type,
                                       unnest(sources) AS source, unnest(subjects) AS subject,
                                       unnest(content_types) AS content_type, unnest(keys) AS key,
                                       unnest("values") AS value,
                                       unnest(header_counts) AS own) AS u) AS e
                 ORDER BY e.nr;
            END IF;
        WHEN 2 THEN
            IF header_counts IS NULL THEN
                INSERT INTO {schema}.events_2
                    ("time", id, topic, type, source, subject, content_type, key, value)
                SELECT unnest(times), unnest(ids), unnest(topics), unnest(types), unnest(sources),
                       unnest(subjects), unnest(content_types), unnest(keys), unnest("values");
            ELSE
                INSERT INTO {schema}.events_2
                    ("time", id, topic, type, source, subject, content_type, key, value,
                     header_names, header_values)
                SELECT e."time", e.id, e.topic, e.type, e.source, e.subject, e.content_type,
                       e.key, e.value,
                       append_many.header_names[e.last - e.own + 1 : e.last],
                       append_many.header_values[e.last - e.own + 1 : e.last]
                  FROM (SELECT u.*, sum(u.own) OVER (ORDER BY u.nr)::int AS last
                          FROM (SELECT generate_series(1, cardinality(ids)) AS nr,
                                       unnest(times) AS "time", unnest(ids) AS id,
                                       unnest(topics) AS topic, unnest(types) AS type,
                                       unnest(sources) AS source, unnest(subjects) AS subject,
                                       unnest(content_types) AS content_type, unnest(keys) AS key,
                                       unnest("values") AS value,
                                       unnest(header_counts) AS own) AS u) AS e
                 ORDER BY e.nr;
            END IF;
        WHEN 3 THEN
            IF header_counts IS NULL THEN
                INSERT INTO {schema}.events_3
                    ("time", id, topic, type, source, subject, content_type, key, value)
                SELECT unnest(times), unnest(ids), unnest(topics), unnest(types), unnest(sources),
                       unnest(subjects), unnest(content_types), unnest(keys), unnest("values");
            ELSE
                INSERT INTO {schema}.events_3
                    ("time", id, topic, type, source, subject, content_type, key, value,
                     header_names, header_values)
                SELECT e."time", e.id, e.topic, e.type, e.source, e.subject, e.content_type,
                       e.key, e.value,
                       append_many.header_names[e.last - e.own + 1 : e.last],
                       append_many.header_values[e.last - e.own + 1 : e.last]
                  FROM (SELECT u.*, sum(u.own) OVER (ORDER BY u.nr)::int AS last
                          FROM (SELECT generate_series(1, cardinality(ids)) AS nr,
                                       unnest(times) AS "time", unnest(ids) AS id,
                                       unnest(topics) AS topic, unnest(types) AS type,
                                       unnest(sources) AS source, unnest(subjects) AS subject,
                                       unnest(content_types) AS content_type, unnest(keys) AS key,
                                       unnest("values") AS value,
                                       unnest(header_counts) AS own) AS u) AS e
                 ORDER BY e.nr;
            END IF;
        ELSE
            -- No leaf has this number.
            IF header_counts IS NULL THEN
                INSERT INTO {schema}.events
                    ("time", id, topic, type, source, subject, content_type, key, value)
                SELECT unnest(times), unnest(ids), unnest(topics), unnest(types), unnest(sources),
                       unnest(subjects), unnest(content_types), unnest(keys), unnest("values");
            ELSE
                INSERT INTO {schema}.events
                    ("time", id, topic, type, source, subject, content_type, key, value,
                     header_names, header_values)
                SELECT e."time", e.id, e.topic, e.type, e.source, e.subject, e.content_type,
                       e.key, e.value,
                       append_many.header_names[e.last - e.own + 1 : e.last],
                       append_many.header_values[e.last - e.own + 1 : e.last]
                  FROM (SELECT u.*, sum(u.own) OVER (ORDER BY u.nr)::int AS last
                          FROM (SELECT generate_series(1, cardinality(ids)) AS nr,
                                       unnest(times) AS "time", unnest(ids) AS id,
                                       unnest(topics) AS topic, unnest(types) AS type,
                                       unnest(sources) AS source, unnest(subjects) AS subject,
                                       unnest(content_types) AS content_type, unnest(keys) AS key,
                                       unnest("values") AS value,
                                       unnest(header_counts) AS own) AS u) AS e
                 ORDER BY e.nr;
            END IF;
        END CASE;
    END IF;
END
$append_many$;
