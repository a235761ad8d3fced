-- Returns true if an event may have this many headers, and raises otherwise. Each costs a relay and a
-- consumer many times its bytes.
CREATE OR REPLACE FUNCTION {schema}.require_header_count(headers int) RETURNS boolean
LANGUAGE plpgsql
AS $require_header_count$
BEGIN
    IF headers > 1000 THEN
        RAISE check_violation USING
            MESSAGE = format('outbox: an event of %s headers, and at most 1000 are allowed',
                             headers);
    END IF;
    RETURN true;
END
$require_header_count$;
