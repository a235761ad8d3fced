-- The events table and the one entry point through which every language writes to it.

CREATE TABLE {schema}.events (
    -- Order within a key, as long as its writers serialise on a lock taken before they append.
    -- CACHE 1: a cached sequence hands out ranges, and ranges invert positions.
    position      bigint GENERATED ALWAYS AS IDENTITY (CACHE 1) PRIMARY KEY,
    -- The relay's cursor is a pair of snapshots over this column, never `position > last`.
    xid           xid8 NOT NULL DEFAULT pg_current_xact_id(),
    appended_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    "time"        timestamptz NOT NULL,
    id            uuid NOT NULL,
    topic         text NOT NULL CHECK (topic <> ''),
    type          text NOT NULL CHECK (type <> ''),
    source        text NOT NULL CHECK (source <> ''),
    subject       text,
    content_type  text,
    key           bytea,
    value         bytea,
    header_names  text[],
    header_values bytea[],
    CHECK (cardinality(header_names) = cardinality(header_values))
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
