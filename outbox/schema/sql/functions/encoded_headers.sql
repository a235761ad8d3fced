-- Returns the headers of an event as format 1 of `encoded` has them.
CREATE OR REPLACE FUNCTION {schema}.encoded_headers(names text[], "values" bytea[]) RETURNS bytea
LANGUAGE sql STABLE
AS $encoded_headers$
    SELECT array_send(array_agg(part ORDER BY nr, second))
      FROM unnest(names, "values") WITH ORDINALITY AS h (name, "value", nr),
           LATERAL (VALUES (false, convert_to(h.name, 'UTF8')), (true, h."value"))
               AS parts (second, part)
$encoded_headers$;
