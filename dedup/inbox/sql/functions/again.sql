-- The handler's transaction calls this when the handler asks for another round. A duplicate
-- that comes later gets the same answer.
CREATE OR REPLACE FUNCTION {schema}.again(consumer text, id text, round int, after bigint) RETURNS void
LANGUAGE sql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $again$
    UPDATE {schema}.handled SET again = $4 WHERE consumer = $1 AND id = $2 AND round = $3;
$again$;
