-- Returns the message of one event for the write-ahead log, in format 1.
--
-- Format 1 has the version, the time as timestamptz_send() writes it, and the id as text. The
-- lengths of kind, subject, key and value follow (int4, -1 for NULL), then these four parts.
-- Headers come last, if there are any. The part `kind` is [topic, type, source, content_type],
-- and the headers are [name, value, name, value, ...]; both are lists of bytea as array_send()
-- writes them. Texts are in UTF-8.
CREATE OR REPLACE FUNCTION {schema}.encoded(
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
    -- Postgres would silently write no message for NULL.
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
