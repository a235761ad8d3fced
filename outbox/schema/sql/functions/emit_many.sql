-- Writes the events of one call to the write-ahead log in few messages. A message costs the
-- server and the relay as much as an event does.
--
-- Format 2 begins with the version and the number of events (int4). The heads of all events
-- follow. A head is the time as timestamptz_send() writes it, the id as text, and five lengths
-- (int4): of kind, subject, key, value (-1 for NULL) and headers (0 for none). After the heads
-- come these five parts of each event, as format 1 has them. A message ends at about 64 KiB.
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
-- Another setting would read the backslashes of the literals differently.
SET standard_conforming_strings = on
AS $emit_many$
DECLARE
    -- 262,144 events of 8,192 bytes are more than an int holds.
    size CONSTANT bigint := pg_column_size(keys)::bigint + pg_column_size("values");
BEGIN
    -- Aggregates silently leave out NULL.
    IF array_position(ids, NULL) IS NOT NULL THEN
        RAISE not_null_violation USING MESSAGE = 'outbox: an event needs an id';
    END IF;
    -- Each large event goes in a message of its own, in format 1. To copy large events together
    -- would cost more than the messages.
    IF size / 8192 > cardinality(ids) OR cardinality(ids) = 1 THEN
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
    -- Most calls fit into one message, which needs no sorting and no sums.
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
    -- OFFSET 0 makes Postgres compute the subquery once.
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
