-- Does what `take` does, in the name of a claim.
CREATE OR REPLACE FUNCTION {schema}.take_claimed(consumer text, id text, round int, claim bigint)
RETURNS bigint
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $take_claimed$
DECLARE
    names text := current_setting({schema}.claims_setting(), true);
BEGIN
    IF NOT EXISTS (SELECT FROM {schema}.claims c WHERE c.claim = $4) THEN
        RAISE EXCEPTION USING ERRCODE = 'TAKEN', MESSAGE =
            'inbox: another member of the group has claimed the partition since';
    END IF;
    -- The trigger of the insert reads the setting, so it is set before. (An assignment is faster than
    -- `PERFORM`, which runs a query.)
    IF coalesce(names, '') IN ('', 'kept') THEN
        names := set_config({schema}.claims_setting(), ' ' || $4 || ' ', true);
    ELSIF position(' ' || $4 || ' ' IN names) = 0 THEN
        names := set_config({schema}.claims_setting(), names || $4 || ' ', true);
    END IF;
    RETURN {schema}.take($1, $2, $3);
END
$take_claimed$;
