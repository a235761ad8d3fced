-- Waits, for a while, until nobody is about to change a claim. No statement_timeout ends a commit,
-- so this wait has a bound of its own.
CREATE OR REPLACE FUNCTION {schema}.await_claim(claim bigint) RETURNS void
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $await_claim$
#variable_conflict use_column
DECLARE
    before CONSTANT text := current_setting('lock_timeout');
BEGIN
    IF before = '0' THEN
        PERFORM set_config('lock_timeout', '10s', true);
    END IF;
    PERFORM FROM {schema}.claims AS c WHERE c.claim = $1 FOR KEY SHARE;
    PERFORM set_config('lock_timeout', before, true);
EXCEPTION WHEN lock_not_available THEN
    RAISE lock_not_available USING MESSAGE = format(
        'inbox: the partition is being claimed by a transaction that does not end: %s',
        {schema}.lockers(ARRAY['claims']));
END
$await_claim$;
