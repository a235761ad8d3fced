-- Writing events to the write-ahead log alone, where `dovecote init --capture wal` asks for it.

CREATE TABLE {schema}.capture (
    one    boolean PRIMARY KEY DEFAULT true CHECK (one),
    -- Any role may write messages to the log: ours are told from forged ones by this prefix.
    prefix text NOT NULL DEFAULT 'dovecote/' || replace(gen_random_uuid()::text, '-', '')
);

INSERT INTO {schema}.capture DEFAULT VALUES;

COMMENT ON TABLE {schema}.capture IS
    'The secret of events in the write-ahead log. Who can read it can forge events.';

CREATE TABLE {schema}.reading (
    one       boolean PRIMARY KEY DEFAULT true CHECK (one),
    -- 'leaving': in the log, until no transaction that may still write to it is left.
    state     text NOT NULL DEFAULT 'table' CHECK (state IN ('table', 'wal', 'leaving')),
    -- Tells one time in a state from the next.
    changed   xid8 NOT NULL DEFAULT pg_current_xact_id(),
    -- Where the newest slot began, and what the table held that was committed before.
    begins_at pg_lsn,
    before    pg_snapshot
);

INSERT INTO {schema}.reading DEFAULT VALUES;

COMMENT ON TABLE {schema}.reading IS
    'Where the relay reads events: in the table, or in the write-ahead log.';

-- For the relay, when progress says that it is back in the table: true if the log is left so.
CREATE FUNCTION {schema}.leave_log(asked xid8) RETURNS boolean
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $leave_log$
BEGIN
    -- The slot is dropped next, and a crash would not bring that back.
    IF current_setting('synchronous_commit') = 'off' THEN
        PERFORM set_config('synchronous_commit', 'on', true);
    END IF;
    UPDATE {schema}.reading AS r SET state = 'table', changed = pg_current_xact_id()
     WHERE r.state = 'leaving' AND r.changed = asked;
    RETURN FOUND;
END
$leave_log$;

-- A constant in the functions that ask: their plans are made anew when it is replaced.
CREATE FUNCTION {schema}.writes_to_wal() RETURNS boolean
LANGUAGE sql IMMUTABLE
AS 'SELECT false';

-- Format 1: version, time as timestamptz_send() writes it, id as text; the lengths of what follows
-- (int4, -1 for NULL): kind, subject, key, value; these four; and headers, if there are any.
-- kind is [topic, type, source, content_type], headers are [name, value, name, value, ...], both
-- lists of bytea as array_send() writes them. Texts are UTF-8.
CREATE FUNCTION {schema}.encoded(
    topic text, key bytea, "value" bytea, type text, id uuid, source text, subject text,
    "time" timestamptz, content_type text, header_names text[], header_values bytea[]
) RETURNS bytea
LANGUAGE plpgsql STABLE
AS $encoded$
DECLARE
    kind bytea := array_send(ARRAY[convert_to(topic, 'UTF8'), convert_to(type, 'UTF8'),
        convert_to(source, 'UTF8'), convert_to(content_type, 'UTF8')]);
    about bytea := convert_to(subject, 'UTF8');
    event bytea := E'\\x01'::bytea || timestamptz_send("time") || convert_to(id::text, 'UTF8')
        || int4send(octet_length(kind)) || int4send(coalesce(octet_length(about), -1))
        || int4send(coalesce(octet_length(key), -1))
        || int4send(coalesce(octet_length("value"), -1))
        || kind || coalesce(about, '') || coalesce(key, '') || coalesce("value", '');
BEGIN
    -- Of NULL no message would be written, and nobody told.
    IF event IS NULL THEN
        RAISE not_null_violation USING MESSAGE = 'outbox: an event needs an id';
    END IF;
    IF cardinality(header_names) > 0 THEN
        RETURN event || (
            SELECT array_send(array_agg(part ORDER BY nr, second))
              FROM unnest(header_names, header_values) WITH ORDINALITY AS h (name, "value", nr),
                   LATERAL (VALUES (false, convert_to(h.name, 'UTF8')), (true, h."value"))
                       AS parts (second, part));
    END IF;
    RETURN event;
END
$encoded$;

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
AS $append$
DECLARE
    own_prefix text;
BEGIN
    -- Until the end of the transaction: an event may be published before an asynchronous commit
    -- is on disk, and a crash of the server would then make the rows vanish, and not the event.
    IF current_setting('synchronous_commit') = 'off' THEN
        PERFORM set_config('synchronous_commit', 'on', true);
    END IF;
    IF {schema}.require_publishable(topic, type, source, "time")
            AND ((header_names IS NULL AND header_values IS NULL)
                 OR {schema}.require_headers(header_names, header_values)) THEN
        IF {schema}.writes_to_wal() THEN
            SELECT c.prefix INTO STRICT own_prefix FROM {schema}.capture AS c;
            PERFORM pg_logical_emit_message(true, own_prefix, {schema}.encoded(
                topic, key, value, type, id, source, subject, "time", content_type,
                header_names, header_values));
        ELSE
            INSERT INTO {schema}.events
                ("time", id, topic, type, source, subject, content_type, key, value,
                 header_names, header_values)
            VALUES
                (append."time", append.id, append.topic, append.type, append.source, append.subject,
                 append.content_type, append.key, append.value,
                 append.header_names, append.header_values);
        END IF;
    END IF;
END
$append$;

-- The array form: event i takes the next header_counts[i] of header_names and header_values.
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
        SELECT (sum(own) = ALL (ARRAY[cardinality(header_names), cardinality(header_values)])
                AND min(own) >= 0) IS NOT TRUE
          FROM unnest(header_counts) AS own
    ) THEN
        RAISE invalid_parameter_value USING MESSAGE =
            'append_many: header_counts do not add up to header_names and header_values';
    END IF;
    IF {schema}.writes_to_wal() THEN
        SELECT c.prefix INTO STRICT own_prefix FROM {schema}.capture AS c;
        PERFORM pg_logical_emit_message(true, own_prefix, {schema}.encoded(
                    e.topic, e.key, e.value, e.type, e.id, e.source, e.subject, e."time",
                    e.content_type,
                    append_many.header_names[e.last - e.own + 1 : e.last],
                    append_many.header_values[e.last - e.own + 1 : e.last]))
           FROM (SELECT u.*, sum(u.own) OVER (ORDER BY u.nr)::int AS last
                   FROM unnest(topics, keys, "values", types, ids, sources, subjects, times,
                               content_types, header_counts)
                        WITH ORDINALITY
                        AS u (topic, key, value, type, id, source, subject, "time",
                              content_type, own, nr)
                  ORDER BY u.nr) AS e;
    ELSIF header_counts IS NULL THEN
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
