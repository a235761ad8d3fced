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
    topic         text NOT NULL,
    type          text NOT NULL,
    source        text NOT NULL,
    subject       text,
    content_type  text,
    key           bytea,
    value         bytea,
    header_names  text[],
    header_values bytea[]
);

CREATE INDEX events_xid ON {schema}.events (xid);

COMMENT ON TABLE {schema}.events IS
    'Events of committed transactions, on their way to Kafka. Write with append(), never directly.';

-- What no record can carry would hold up everything behind it. Not constraints of the table:
-- those are prepared anew for every INSERT, which doubles its time.
-- They return true or raise, so that a caller can ask in an IF, which costs no query.
CREATE FUNCTION {schema}.require_publishable(
    topic text, type text, source text, "time" timestamptz
) RETURNS boolean
LANGUAGE plpgsql
AS $require_publishable$
BEGIN
    IF (topic !~ '[^a-zA-Z0-9._-]' AND length(topic) BETWEEN 1 AND 249
            AND topic NOT IN ('.', '..')) IS NOT TRUE THEN
        RAISE check_violation USING MESSAGE = format('outbox: %L is not a Kafka topic name', topic);
    END IF;
    IF starts_with(topic, '__') OR starts_with(topic, 'dovecote.progress.')
            OR starts_with(topic, 'dovecote.markers.') THEN
        RAISE check_violation USING
            MESSAGE = format('outbox: topic %L is Kafka''s or Dovecote''s own', topic);
    END IF;
    IF (type <> '' AND source <> '') IS NOT TRUE THEN
        RAISE check_violation USING MESSAGE = 'outbox: an event needs a type and a source';
    END IF;
    IF ("time" >= '0001-01-01 00:00:00+00' AND "time" < '10000-01-01 00:00:00+00')
            IS NOT TRUE THEN
        RAISE check_violation USING
            MESSAGE = format('outbox: time %s is not in the years 1 to 9999', "time");
    END IF;
    RETURN true;
END
$require_publishable$;

CREATE FUNCTION {schema}.require_headers(names text[], "values" bytea[]) RETURNS boolean
LANGUAGE plpgsql
AS $require_headers$
BEGIN
    IF names IS NULL AND "values" IS NULL THEN
        RETURN true;
    END IF;
    IF (cardinality(names) = cardinality("values")) IS NOT TRUE
            OR array_ndims(names) > 1 OR array_ndims("values") > 1 THEN
        RAISE check_violation USING
            MESSAGE = 'outbox: header_names and header_values must be two lists of one length';
    END IF;
    IF array_position(names, NULL) IS NOT NULL OR array_position(names, '') IS NOT NULL THEN
        RAISE check_violation USING MESSAGE = 'outbox: a header needs a name';
    END IF;
    IF names && ARRAY['ce_id', 'ce_type', 'ce_source', 'ce_subject', 'ce_time', 'ce_specversion',
                      'content-type'] THEN
        RAISE check_violation USING
            MESSAGE = 'outbox: a header belongs to the envelope; set the event''s own field';
    END IF;
    RETURN true;
END
$require_headers$;

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
    -- Until the end of the transaction: an event may be published before an asynchronous commit
    -- is on disk, and a crash of the server would then make the rows vanish, and not the event.
    IF current_setting('synchronous_commit') = 'off' THEN
        PERFORM set_config('synchronous_commit', 'on', true);
    END IF;
    IF {schema}.require_publishable(topic, type, source, "time")
            AND ((header_names IS NULL AND header_values IS NULL)
                 OR {schema}.require_headers(header_names, header_values)) THEN
        INSERT INTO {schema}.events
            ("time", id, topic, type, source, subject, content_type, key, value,
             header_names, header_values)
        VALUES
            (append."time", append.id, append.topic, append.type, append.source, append.subject,
             append.content_type, append.key, append.value,
             append.header_names, append.header_values);
    END IF;
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
