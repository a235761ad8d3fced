-- Lets go of what the session holds. Others can take it after the end of the transaction.
CREATE OR REPLACE FUNCTION {schema}.let_go(what text) RETURNS void
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $let_go$
#variable_conflict use_column
DECLARE
    mine bigint := (SELECT h.key FROM {schema}.holds AS h
                     WHERE h.what = $1 AND h.pid = pg_backend_pid());
BEGIN
    IF mine IS NOT NULL THEN
        UPDATE {schema}.holds AS h SET pid = NULL, key = NULL WHERE h.what = $1 AND h.key = mine;
        PERFORM pg_advisory_unlock(mine);
    END IF;
END
$let_go$;
