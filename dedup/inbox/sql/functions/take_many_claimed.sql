-- Does what `take_many` does, each event in the name of a claim.
CREATE OR REPLACE FUNCTION {schema}.take_many_claimed(
    consumer text, ids text[], rounds int[], claims bigint[]
) RETURNS bigint[]
LANGUAGE sql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $take_many_claimed$
    SELECT array_agg(taken.before ORDER BY taken.nr)
      FROM (SELECT sorted.nr,
                   {schema}.take_claimed($1, sorted.id, sorted.round, sorted.claim) AS before
              FROM (SELECT e.id, e.round, e.claim, e.nr
                      FROM unnest($2, $3, $4) WITH ORDINALITY AS e (id, round, claim, nr)
                     ORDER BY e.id, e.round, e.nr OFFSET 0) AS sorted) AS taken;
$take_many_claimed$;
