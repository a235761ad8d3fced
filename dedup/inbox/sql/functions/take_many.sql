-- Does what `take` does, for a batch. All consumers take events in the same order, so that no
-- two of them wait for each other.
CREATE OR REPLACE FUNCTION {schema}.take_many(consumer text, ids text[], rounds int[]) RETURNS bigint[]
LANGUAGE sql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $take_many$
    SELECT array_agg(taken.before ORDER BY taken.nr)
      FROM (SELECT sorted.nr, {schema}.take($1, sorted.id, sorted.round) AS before
              FROM (SELECT e.id, e.round, e.nr
                      FROM unnest($2, $3) WITH ORDINALITY AS e (id, round, nr)
                     ORDER BY e.id, e.round, e.nr OFFSET 0) AS sorted) AS taken;
$take_many$;
