-- Makes writers write to the leaf of this number.
CREATE OR REPLACE FUNCTION {schema}.write_to_leaf(number int) RETURNS void
LANGUAGE sql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $write_to_leaf$
    SELECT setval($leaf${schema}.leaf$leaf$, number)
$write_to_leaf$;
