-- An outbox is known by a random id of its own, whatever it is called; and a database that went back
-- in time is told from one that did not, by numbers that are used once.

CREATE TABLE {schema}.identity (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    id  uuid NOT NULL DEFAULT gen_random_uuid()
);

INSERT INTO {schema}.identity DEFAULT VALUES;

COMMENT ON TABLE {schema}.identity IS
    'What Kafka knows this outbox by: transactional ids and progress records contain it.';

ALTER TABLE {schema}.claims
    -- False until the first progress of the name is in Kafka: until then it has published nothing.
    ADD COLUMN began    boolean NOT NULL DEFAULT true,
    -- The id of the Kafka cluster that it publishes to.
    ADD COLUMN cluster  text,
    -- How often a relay has taken over.
    ADD COLUMN term     bigint NOT NULL DEFAULT 0,
    -- Progress in Kafka carries one of these two. A database that was put back to an earlier state
    -- knows neither.
    ADD COLUMN nonce    uuid,
    ADD COLUMN previous uuid,
    -- Progress that was durable when the nonce was written, and when that was by the relay's clock, in
    -- milliseconds since 1970. What is published by then was published before, and everything else
    -- after. Rows that this progress does not pass stay where they are.
    ADD COLUMN mark      text,
    ADD COLUMN marked_at bigint;

-- For a relay that takes over, and now and then for the active one: writes a nonce that was never used
-- before, and returns it with the number of its term. Returns no row if the nonce is not `known` any
-- more: another relay was faster. `kept` is the one that progress carries. Without `marked_at` the mark
-- stays, and unless it is to be written `anew` the nonce.
CREATE FUNCTION {schema}.renew_claim(
    claimed text, cluster text, known uuid, kept uuid, beyond bigint, mark text, marked_at bigint,
    anew boolean DEFAULT true
) RETURNS TABLE (term bigint, nonce uuid)
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $renew_claim$
#variable_conflict use_column
BEGIN
    -- Progress carries it next: a crash must not take it back.
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

-- For a relay whose first progress is in Kafka: from now on, progress that is missing was lost.
CREATE FUNCTION {schema}.begin_claim(claimed text) RETURNS void
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $begin_claim$
BEGIN
    PERFORM set_config('synchronous_commit', 'local', true);
    UPDATE {schema}.claims AS c SET began = true, since = now()
      FROM pg_control_system() AS s, pg_database AS d
     WHERE d.datname = current_database()
       AND (c.name, c.system_identifier, c.database) = (claimed, s.system_identifier::text, d.oid)
       AND NOT c.began;
END
$begin_claim$;

DO $relays$
DECLARE
    here  CONSTANT oid := (SELECT relnamespace FROM pg_class
                            WHERE oid = (SELECT tableoid FROM {schema}.migrations LIMIT 1));
    added text;
    relay regrole;
BEGIN
    added := (SELECT string_agg(oid::regprocedure::text, ', ') FROM pg_proc
               WHERE pronamespace = here AND proname IN ('renew_claim', 'begin_claim'));
    FOR relay IN
        SELECT DISTINCT acl.grantee::regrole
          FROM pg_class AS c, aclexplode(c.relacl) AS acl
         WHERE c.relname = 'claims' AND c.relnamespace = here AND acl.privilege_type = 'INSERT'
           AND acl.grantee NOT IN (0, c.relowner)
    LOOP
        EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO %s', added, relay);
        EXECUTE format('REVOKE INSERT ON %s.claims FROM %s', here::regnamespace, relay);
        EXECUTE format('GRANT SELECT ON %s TO %s', format('%s.identity', here::regnamespace), relay);
    END LOOP;
END
$relays$;
