-- Returns true if Kafka can take an event of these fields, and raises otherwise. An event that
-- no record can carry would hold up every later one.
--
-- Constraints of the table would double the time of an INSERT, because Postgres prepares them
-- anew each time. A caller can ask in an IF, because the function returns a boolean; an IF
-- costs no query.
CREATE OR REPLACE FUNCTION {schema}.require_publishable(
    topic text, type text, source text, "time" timestamptz
) RETURNS boolean
LANGUAGE plpgsql
AS $require_publishable$
BEGIN
    IF (topic !~ '[^a-zA-Z0-9._-]' AND length(topic) BETWEEN 1 AND 249
            AND topic NOT IN ('.', '..')) IS NOT TRUE THEN
        RAISE check_violation USING MESSAGE = format('outbox: %L is not a Kafka topic name', topic);
    END IF;
    IF starts_with(topic, '__') OR starts_with(topic, 'dovecote.')
            AND topic ~ '^dovecote\.((progress|markers|push)\.|skips)' THEN
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
