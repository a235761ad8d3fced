-- Returns true if an event may have this size, and raises otherwise.
CREATE OR REPLACE FUNCTION {schema}.require_size(size bigint) RETURNS boolean
LANGUAGE plpgsql
AS $require_size$
BEGIN
    IF size > {schema}.max_event_bytes() THEN
        RAISE check_violation USING
            MESSAGE = format('outbox: an event of %s bytes, and at most %s are allowed',
                             size, {schema}.max_event_bytes()),
            HINT = 'Keep the content elsewhere, and its place in the event; or let more in with '
                   '`dovecote init outbox --max-event-bytes`.';
    END IF;
    RETURN true;
END
$require_size$;
