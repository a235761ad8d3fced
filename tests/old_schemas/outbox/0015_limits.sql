-- What is larger than any broker takes is refused where it is written, and not only by the relay, which
-- would have to bring it in first.

-- The most bytes of one event: key, value, headers and texts. `dovecote init --max-event-bytes`
-- makes it anew.
CREATE FUNCTION {schema}.max_event_bytes() RETURNS int
LANGUAGE sql IMMUTABLE
AS 'SELECT 16777216';

-- Returns true or raises, as the other requirements do.
CREATE FUNCTION {schema}.require_size(size bigint) RETURNS boolean
LANGUAGE plpgsql
AS $require_size$
BEGIN
    IF size > {schema}.max_event_bytes() THEN
        RAISE check_violation USING
            MESSAGE = format('outbox: an event of %s bytes, and at most %s are allowed',
                             size, {schema}.max_event_bytes()),
            HINT = 'Keep the content elsewhere, and its place in the event; or let more in with '
                   '`dovecote init --max-event-bytes`.';
    END IF;
    RETURN true;
END
$require_size$;

DO $limits$
DECLARE
    definition text;
    correction record;
BEGIN
    FOR correction IN VALUES
        ('append',
         'AND header_names IS NULL AND header_values IS NULL',
         $with$AND header_names IS NULL AND header_values IS NULL
            AND coalesce(octet_length(value)::bigint, 0) + coalesce(octet_length(key), 0)
                + octet_length(type) + octet_length(source) + coalesce(octet_length(subject), 0)
                + coalesce(octet_length(content_type), 0) <= {schema}.max_event_bytes()$with$),
        ('append',
         $with${schema}.require_headers(header_names, header_values);$with$,
         $with${schema}.require_headers(header_names, header_values),
                {schema}.require_size(
                    coalesce(octet_length(value)::bigint, 0) + coalesce(octet_length(key), 0)
                    + octet_length(type) + octet_length(source)
                    + coalesce(octet_length(subject), 0) + coalesce(octet_length(content_type), 0)
                    + coalesce(pg_column_size(header_names), 0)
                    + coalesce(pg_column_size(header_values), 0));$with$),
        ('append_many',
         $with$    IF {schema}.writes_to_wal() THEN$with$,
         $with$    -- Together they are rarely so large that one of them could be.
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
    IF {schema}.writes_to_wal() THEN$with$)
    LOOP
        SELECT pg_get_functiondef(p.oid) INTO STRICT definition
          FROM pg_proc AS p
         WHERE p.proname = correction.column1
           AND p.pronamespace = $schema${schema}$schema$::regnamespace;
        IF strpos(definition, correction.column2) = 0 THEN
            RAISE object_not_in_prerequisite_state USING MESSAGE = format(
                'outbox: %s is not that of version 14: restore it, and try again',
                correction.column1);
        END IF;
        EXECUTE replace(definition, correction.column2, correction.column3);
    END LOOP;
END
$limits$;

-- In the log a number within a transaction and an id are not one event's alone: the same id, written
-- again as the first event of another transaction, has both.
ALTER TABLE {schema}.parked ADD COLUMN lsn pg_lsn;

COMMENT ON COLUMN {schema}.parked.lsn IS
    'Of an event from the log: where its transaction commits. Its position is its number in there.';
