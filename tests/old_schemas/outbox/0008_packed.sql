-- What one call writes to the write-ahead log goes in few messages, not in one for each event: a
-- message costs the server and the relay as much as an event does.

CREATE FUNCTION {schema}.encoded_headers(names text[], "values" bytea[]) RETURNS bytea
LANGUAGE sql STABLE
AS $encoded_headers$
    SELECT array_send(array_agg(part ORDER BY nr, second))
      FROM unnest(names, "values") WITH ORDINALITY AS h (name, "value", nr),
           LATERAL (VALUES (false, convert_to(h.name, 'UTF8')), (true, h."value"))
               AS parts (second, part)
$encoded_headers$;

-- Format 2: version and the number of events (int4); of each event its head: time as
-- timestamptz_send() writes it, id as text, the lengths (int4, -1 for NULL) of kind, subject, key
-- and value, and of headers (0: none); behind all heads, of each event these five, as format 1 has
-- them. A message ends about where it has 64 KiB.
CREATE FUNCTION {schema}.emit_many(
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
                   FROM unnest(topics, keys, "values", types, ids, sources, subjects, times,
                               content_types, header_counts)
                        WITH ORDINALITY
                        AS u (topic, key, "value", type, id, source, subject, "time",
                              content_type, own, nr)
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
                           FROM unnest(topics, keys, "values", types, ids, sources, subjects,
                                       times, content_types)
                                AS u (topic, key, "value", type, id, source, subject, "time",
                                      content_type)
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
                                               FROM unnest(topics, keys, "values", types, ids,
                                                           sources, subjects, times,
                                                           content_types, header_counts)
                                                    WITH ORDINALITY
                                                    AS o (topic, key, "value", type, id, source,
                                                          subject, "time", content_type, own, nr)
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
                SELECT e."time", e.id, e.topic, e.type, e.source, e.subject, e.content_type,
                       e.key, e.value
                  FROM unnest(times, ids, topics, types, sources, subjects, content_types, keys,
                              "values")
                       WITH ORDINALITY
                       AS e ("time", id, topic, type, source, subject, content_type, key, value,
                             nr)
                 ORDER BY e.nr;
            ELSE
                INSERT INTO <<leaf>>
                    ("time", id, topic, type, source, subject, content_type, key, value,
                     header_names, header_values)
                SELECT e."time", e.id, e.topic, e.type, e.source, e.subject, e.content_type,
                       e.key, e.value,
                       append_many.header_names[e.last - e.own + 1 : e.last],
                       append_many.header_values[e.last - e.own + 1 : e.last]
                  FROM (SELECT u.*, sum(u.own) OVER (ORDER BY u.nr)::int AS last
                          FROM unnest(times, ids, topics, types, sources, subjects, content_types,
                                      keys, "values", header_counts)
                               WITH ORDINALITY
                               AS u ("time", id, topic, type, source, subject, content_type,
                                     key, value, own, nr)) AS e
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
    PERFORM {schema}.require_publishable(e.topic, e.type, e.source, e."time")
       FROM unnest(topics, types, sources, times) AS e (topic, type, source, "time");
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
