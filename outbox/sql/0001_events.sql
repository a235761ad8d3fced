-- The events table and the one entry point through which every language writes to it.

CREATE TABLE {schema}.events (
    -- Order within a key, as long as its writers serialise on a lock taken before they append.
    -- CACHE 1: a cached sequence hands out ranges, and ranges invert positions.
    position      bigint GENERATED ALWAYS AS IDENTITY (CACHE 1) PRIMARY KEY,
    -- The relay's cursor is a pair of snapshots over this column, never `position > last`.
    xid           xid8 NOT NULL DEFAULT pg_current_xact_id(),
    appended_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    -- What a record's `ce_time` can tell.
    "time"        timestamptz NOT NULL CHECK (
        "time" >= '0001-01-01 00:00:00+00' AND "time" < '10000-01-01 00:00:00+00'
    ),
    id            uuid NOT NULL,
    -- Kafka's rule for names. A record in Kafka's own topics or in ours would be taken for theirs.
    topic         text NOT NULL CHECK (
        topic !~ '[^a-zA-Z0-9._-]' AND length(topic) BETWEEN 1 AND 249
        AND topic NOT IN ('.', '..') AND NOT starts_with(topic, '__')
        AND NOT starts_with(topic, 'dovecote.progress.')
        AND NOT starts_with(topic, 'dovecote.markers.')
    ),
    type          text NOT NULL CHECK (type <> ''),
    source        text NOT NULL CHECK (source <> ''),
    subject       text,
    content_type  text,
    key           bytea,
    value         bytea,
    header_names  text[],
    header_values bytea[],
    -- What no record can carry would hold up everything behind it.
    CONSTRAINT events_headers_pair CHECK (
        (header_names IS NULL) = (header_values IS NULL)
        AND cardinality(header_names) = cardinality(header_values)
        AND coalesce(array_ndims(header_names), 1) = 1
        AND coalesce(array_ndims(header_values), 1) = 1
    ),
    CONSTRAINT events_header_names CHECK (
        array_position(header_names, NULL) IS NULL AND array_position(header_names, '') IS NULL
        AND NOT header_names && ARRAY[
            'ce_id', 'ce_type', 'ce_source', 'ce_subject', 'ce_time', 'ce_specversion',
            'content-type'
        ]
    )
);

CREATE INDEX events_xid ON {schema}.events (xid);

COMMENT ON TABLE {schema}.events IS
    'Events of committed transactions, on their way to Kafka. Write with append(), never directly.';

CREATE FUNCTION {schema}.append(
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
AS $append$
BEGIN
    INSERT INTO {schema}.events
        ("time", id, topic, type, source, subject, content_type, key, value,
         header_names, header_values)
    VALUES
        (append."time", append.id, append.topic, append.type, append.source, append.subject,
         append.content_type, append.key, append.value,
         append.header_names, append.header_values);
END
$append$;

-- The array form: event i takes the next header_counts[i] of header_names and header_values.
CREATE FUNCTION {schema}.append_many(
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
BEGIN
    -- unnest() would fill up what is short with NULL: a key could vanish without a word.
    IF (cardinality(topics) = ALL (ARRAY[
            cardinality(keys), cardinality("values"), cardinality(types), cardinality(ids),
            cardinality(sources), cardinality(subjects), cardinality(times),
            cardinality(content_types), coalesce(cardinality(header_counts), cardinality(topics))
        ])) IS NOT TRUE THEN
        RAISE invalid_parameter_value USING MESSAGE = 'append_many: arrays of different lengths';
    END IF;
    IF header_counts IS NOT NULL AND (
        SELECT (sum(own) = ALL (ARRAY[cardinality(header_names), cardinality(header_values)])
                AND min(own) >= 0) IS NOT TRUE
          FROM unnest(header_counts) AS own
    ) THEN
        RAISE invalid_parameter_value USING MESSAGE =
            'append_many: header_counts do not add up to header_names and header_values';
    END IF;
    IF header_counts IS NULL THEN
        INSERT INTO {schema}.events
            ("time", id, topic, type, source, subject, content_type, key, value)
        SELECT e."time", e.id, e.topic, e.type, e.source, e.subject, e.content_type, e.key, e.value
          FROM unnest(times, ids, topics, types, sources, subjects, content_types, keys, "values")
               WITH ORDINALITY
               AS e ("time", id, topic, type, source, subject, content_type, key, value, nr)
         ORDER BY e.nr;
    ELSE
        INSERT INTO {schema}.events
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
    END IF;
END
$append_many$;
