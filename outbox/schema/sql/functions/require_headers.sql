-- Returns true if an event can have these headers, and raises otherwise.
CREATE OR REPLACE FUNCTION {schema}.require_headers(names text[], "values" bytea[]) RETURNS boolean
LANGUAGE plpgsql
AS $require_headers$
BEGIN
    IF names IS NULL AND "values" IS NULL THEN
        RETURN true;
    END IF;
    IF (cardinality(names) = cardinality("values")) IS NOT TRUE
            OR array_ndims(names) > 1 OR array_ndims("values") > 1 THEN
        RAISE check_violation USING
            MESSAGE = 'outbox: header_names and header_values must be two lists of one length';
    END IF;
    IF array_position(names, NULL) IS NOT NULL OR array_position(names, '') IS NOT NULL THEN
        RAISE check_violation USING MESSAGE = 'outbox: a header needs a name';
    END IF;
    IF names && ARRAY['ce_id', 'ce_type', 'ce_source', 'ce_subject', 'ce_time', 'ce_specversion',
                      'content-type'] THEN
        RAISE check_violation USING
            MESSAGE = 'outbox: a header belongs to the envelope; set the event''s own field';
    END IF;
    IF EXISTS (SELECT FROM unnest(names) AS own (name)
                WHERE starts_with(lower(name), 'dovecote_') AND name <> 'dovecote_hops') THEN
        RAISE check_violation USING
            MESSAGE = 'outbox: a header dovecote_* is Dovecote''s own; leave it out where you '
                      'copy the headers of a record';
    END IF;
    RETURN true;
END
$require_headers$;
