-- Notifies the callers that wait for an event, when the transaction that has taken it commits.
CREATE OR REPLACE FUNCTION {schema}.notify_waiting(consumer text, id text) RETURNS void
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $notify_waiting$
#variable_conflict use_column
BEGIN
    -- A snapshot of a whole transaction may be older than the row of a caller.
    IF current_setting('transaction_isolation') <> 'read committed'
       OR EXISTS (SELECT FROM {schema}.awaited a
                   WHERE a.consumer = notify_waiting.consumer AND a.id = notify_waiting.id) THEN
        -- Every role may listen, so nobody learns the event's name from it.
        PERFORM pg_notify('dovecote_handled', encode(sha256(convert_to(
            notify_waiting.consumer || ' ' || notify_waiting.id, 'UTF8')), 'hex'));
    END IF;
END
$notify_waiting$;
