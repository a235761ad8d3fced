-- Many events cost the server less: arrays are unnested beside each other in a SELECT list, which
-- hands on row by row, where FROM unnest(a, b, ...) first stores each of them; and what many
-- events have in common is checked once.

CREATE OR REPLACE FUNCTION {schema}.emit_many(
    own_prefix text,
    topics text[],
    keys bytea[],
    "values" bytea[],
    types text[],
    ids uuid[],
    sources text[],
    subjects text[],
    times timestamptz[],
    content_types text[],
    header_counts int[],
    header_names text[],
    header_values bytea[]
) RETURNS void
LANGUAGE plpgsql
AS $emit_many$
DECLARE
    size CONSTANT int := pg_column_size(keys) + pg_column_size("values");
BEGIN
    -- Aggregates leave out what is NULL, and nobody is told.
    IF array_position(ids, NULL) IS NOT NULL THEN
        RAISE not_null_violation USING MESSAGE = 'outbox: an event needs an id';
    END IF;
    -- Large events go each in its own, in format 1: put together, they would be copied more often
    -- than a message costs.
    IF size > 8192 * cardinality(ids) OR cardinality(ids) = 1 THEN
        PERFORM pg_logical_emit_message(true, own_prefix, {schema}.encoded(
                    e.topic, e.key, e."value", e.type, e.id, e.source, e.subject, e."time",
                    e.content_type, header_names[e.last - e.own + 1 : e.last],
                    header_values[e.last - e.own + 1 : e.last]))
           FROM (SELECT u.*, sum(u.own) OVER (ORDER BY u.nr)::int AS last
                   FROM (SELECT generate_series(1, cardinality(ids)) AS nr,
                                unnest(topics) AS topic, unnest(keys) AS key,
                                unnest("values") AS "value", unnest(types) AS type,
                                unnest(ids) AS id, unnest(sources) AS source,
                                unnest(subjects) AS subject, unnest(times) AS "time",
                                unnest(content_types) AS content_type,
                                unnest(header_counts) AS own) AS u
                  ORDER BY u.nr) AS e;
        RETURN;
    END IF;
    -- One message for all, as most calls are: nothing is to be sorted or summed up.
    IF header_counts IS NULL AND size <= 65536 THEN
        PERFORM pg_logical_emit_message(true, own_prefix,
                    E'\\x02'::bytea || int4send(count(*)::int)
                    || string_agg(head, '') || string_agg(body, ''))
           FROM (SELECT timestamptz_send(e."time") || convert_to(e.id::text, 'UTF8')
                        || int4send(octet_length(e.kind))
                        || int4send(coalesce(octet_length(e.about), -1))
                        || int4send(coalesce(octet_length(e.key), -1))
                        || int4send(coalesce(octet_length(e."value"), -1))
                        || E'\\x00000000'::bytea AS head,
                        e.kind || coalesce(e.about, '') || coalesce(e.key, '')
                        || coalesce(e."value", '') AS body
                   FROM (SELECT u."time", u.id, u.key, u."value",
                                convert_to(u.subject, 'UTF8') AS about,
                                array_send(ARRAY[
                                    convert_to(u.topic, 'UTF8'), convert_to(u.type, 'UTF8'),
                                    convert_to(u.source, 'UTF8'),
                                    convert_to(u.content_type, 'UTF8')]) AS kind
                           FROM (SELECT unnest(topics) AS topic, unnest(keys) AS key,
                                        unnest("values") AS "value", unnest(types) AS type,
                                        unnest(ids) AS id, unnest(sources) AS source,
                                        unnest(subjects) AS subject, unnest(times) AS "time",
                                        unnest(content_types) AS content_type) AS u
                         OFFSET 0) AS e) AS events
         HAVING count(*) > 0;
        RETURN;
    END IF;
    -- OFFSET 0: what is made below it is made once.
    PERFORM pg_logical_emit_message(true, own_prefix, message)
       FROM (SELECT E'\\x02'::bytea || int4send(count(*)::int)
                    || string_agg(head, '' ORDER BY nr) || string_agg(body, '' ORDER BY nr)
                    AS message
               FROM (SELECT nr, head, body,
                            (sum(octet_length(body)) OVER (ORDER BY nr) - octet_length(body))
                            / 65536 AS piece
                       FROM (SELECT nr,
                                    timestamptz_send("time") || convert_to(id::text, 'UTF8')
                                    || int4send(octet_length(kind))
                                    || int4send(coalesce(octet_length(about), -1))
                                    || int4send(coalesce(octet_length(key), -1))
                                    || int4send(coalesce(octet_length("value"), -1))
                                    || int4send(octet_length(headers)) AS head,
                                    kind || coalesce(about, '') || coalesce(key, '')
                                    || coalesce("value", '') || headers AS body
                               FROM (SELECT u.nr, u."time", u.id, u.key, u."value",
                                            convert_to(u.subject, 'UTF8') AS about,
                                            array_send(ARRAY[
                                                convert_to(u.topic, 'UTF8'),
                                                convert_to(u.type, 'UTF8'),
                                                convert_to(u.source, 'UTF8'),
                                                convert_to(u.content_type, 'UTF8')]) AS kind,
                                            CASE WHEN u.own > 0 THEN {schema}.encoded_headers(
                                                header_names[u.last - u.own + 1 : u.last],
                                                header_values[u.last - u.own + 1 : u.last])
                                            ELSE '' END AS headers
                                       FROM (SELECT o.*, sum(o.own) OVER (ORDER BY o.nr)::int
                                                    AS last
                                               FROM (SELECT generate_series(1, cardinality(ids))
                                                                AS nr,
                                                            unnest(topics) AS topic,
                                                            unnest(keys) AS key,
                                                            unnest("values") AS "value",
                                                            unnest(types) AS type,
                                                            unnest(ids) AS id,
                                                            unnest(sources) AS source,
                                                            unnest(subjects) AS subject,
                                                            unnest(times) AS "time",
                                                            unnest(content_types)
                                                                AS content_type,
                                                            unnest(header_counts) AS own) AS o
                                            ) AS u
                                     OFFSET 0) AS parts
                             OFFSET 0) AS events) AS placed
              GROUP BY piece
              ORDER BY piece) AS messages;
END
$emit_many$;

DO $writers$
DECLARE
    many CONSTANT text := $many$
            IF header_counts IS NULL THEN
                INSERT INTO <<leaf>>
                    ("time", id, topic, type, source, subject, content_type, key, value)
                SELECT unnest(times), unnest(ids), unnest(topics), unnest(types), unnest(sources),
                       unnest(subjects), unnest(content_types), unnest(keys), unnest("values");
            ELSE
                INSERT INTO <<leaf>>
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
            END IF;$many$;
    append_many CONSTANT text := $function$
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
-- With plans of Postgres' own choice one event took twice as long to reach the log.
SET plan_cache_mode = force_generic_plan
AS $append_many$
DECLARE
    own_prefix text;
BEGIN
    -- Until the end of the transaction: an event may be published before an asynchronous commit
    -- is on disk, and a crash of the server would then make the rows vanish, and not the event.
    IF current_setting('synchronous_commit') = 'off' THEN
        PERFORM set_config('synchronous_commit', 'on', true);
    END IF;
    -- unnest() would fill up what is short with NULL: a key could vanish without a word.
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
                    -- An aggregate passes over what is NULL.
                    CASE WHEN count("time") = count(*) THEN min("time") END AS earliest
               FROM (SELECT unnest(topics) AS topic, unnest(types) AS type,
                            unnest(sources) AS source, unnest(times) AS "time") AS each
              GROUP BY topic, type, source) AS e;
    PERFORM {schema}.require_headers(header_names, header_values);
    IF header_counts IS NOT NULL AND (
        SELECT (coalesce(sum(own), 0)
                = ALL (ARRAY[cardinality(header_names), cardinality(header_values)])
                AND coalesce(min(own), 0) >= 0) IS NOT TRUE
          FROM unnest(header_counts) AS own
    ) THEN
        RAISE invalid_parameter_value USING MESSAGE =
            'append_many: header_counts do not add up to header_names and header_values';
    END IF;
    -- Events take theirs from 1 on.
    IF array_lower(header_names, 1) <> 1 OR array_lower(header_values, 1) <> 1 THEN
        RAISE invalid_parameter_value USING MESSAGE =
            'append_many: header_names and header_values must have their first element at 1';
    END IF;
    IF {schema}.writes_to_wal() THEN
        SELECT c.prefix INTO STRICT own_prefix FROM {schema}.capture AS c;
        PERFORM {schema}.emit_many(own_prefix, topics, keys, "values", types, ids, sources,
            subjects, times, content_types, header_counts, header_names, header_values);
    ELSE
        CASE pg_sequence_last_value($leaf${schema}.leaf$leaf$)
        <<inserts>>
        END CASE;
    END IF;
END
$append_many$;
    $function$;
    manies text := '';
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
        manies := manies || branch || replace(many, '<<leaf>>', leaf) || E'\n';
    END LOOP;
    EXECUTE replace(append_many, '<<inserts>>', manies);
END
$writers$;
