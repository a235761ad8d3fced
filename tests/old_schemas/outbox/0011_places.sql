-- Where the log began is a place of one server: in a database that was restored from a dump of
-- another, it is nowhere.
ALTER TABLE {schema}.reading ADD COLUMN begins_in text;
UPDATE {schema}.reading
   SET begins_in = (SELECT c.system_identifier || '/' || d.oid
                      FROM pg_control_system() AS c, pg_database AS d
                     WHERE d.datname = current_database())
 WHERE begins_at IS NOT NULL;

COMMENT ON COLUMN {schema}.reading.begins_in IS
    'Which database begins_at is of: system identifier and oid.';

-- As before, of any number of events: 8,192 bytes for each of 262,144 are more than an int holds,
-- and what the table takes in one call the log takes, too.
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
SET standard_conforming_strings = on
AS $emit_many$
DECLARE
    size CONSTANT bigint := pg_column_size(keys)::bigint + pg_column_size("values");
BEGIN
    -- Aggregates leave out what is NULL, and nobody is told.
    IF array_position(ids, NULL) IS NOT NULL THEN
        RAISE not_null_violation USING MESSAGE = 'outbox: an event needs an id';
    END IF;
    -- Large events go each in its own, in format 1: put together, they would be copied more often
    -- than a message costs.
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
