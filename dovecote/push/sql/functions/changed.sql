-- Counts every change of the subscriptions, and notifies the processes.
CREATE OR REPLACE FUNCTION {schema}.changed() RETURNS trigger
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $changed$
BEGIN
    UPDATE {schema}.revision SET number = number + 1;
    PERFORM pg_notify('dovecote.push', '');
    RETURN NULL;
END
$changed$;
