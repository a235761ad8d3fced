-- A relay calls this when it takes over, and the active one calls it now and then. The function
-- writes a nonce that was never used before, and returns it with the number of its term. It
-- returns no row if `known` is no longer the nonce, because another relay was faster. `kept` is
-- the nonce that progress carries. Without `marked_at` the mark stays. The nonce stays if
-- `anew` is false.
CREATE OR REPLACE FUNCTION {schema}.renew_claim(
    claimed text, cluster text, known uuid, kept uuid, beyond bigint, mark text, marked_at bigint,
    anew boolean DEFAULT true
) RETURNS TABLE (term bigint, nonce uuid)
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $renew_claim$
#variable_conflict use_column
BEGIN
    -- Progress carries the nonce next, so a crash must not take it back.
    PERFORM set_config('synchronous_commit', 'local', true);
    RETURN QUERY
    INSERT INTO {schema}.claims AS c
           (name, system_identifier, database, began, cluster, term, nonce, previous, mark, marked_at)
    SELECT claimed, s.system_identifier::text, d.oid, false, renew_claim.cluster,
           coalesce(beyond, 0) + 1, gen_random_uuid(), kept, renew_claim.mark, renew_claim.marked_at
      FROM pg_control_system() AS s, pg_database AS d
     WHERE d.datname = current_database()
    ON CONFLICT (name, system_identifier, database) DO UPDATE
       SET cluster = excluded.cluster,
           nonce = CASE WHEN anew THEN excluded.nonce ELSE c.nonce END,
           previous = CASE WHEN anew THEN excluded.previous ELSE c.previous END,
           term = CASE WHEN beyond IS NULL THEN c.term ELSE greatest(c.term, beyond) + 1 END,
           mark = CASE WHEN excluded.marked_at IS NULL THEN c.mark ELSE excluded.mark END,
           marked_at = coalesce(excluded.marked_at, c.marked_at)
     WHERE c.nonce IS NOT DISTINCT FROM known
    RETURNING c.term, c.nonce;
END
$renew_claim$;
