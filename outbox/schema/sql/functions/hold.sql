-- Takes something for the session, until the session ends or lets it go. The function returns false
-- if another session has it, or is just about to take it; it never waits.
--
-- The line of the table stays locked until the end of the transaction. Two sessions that ask at
-- once are told apart by that, and a session that ends leaves a number that nobody has locked.
CREATE OR REPLACE FUNCTION {schema}.hold(what text) RETURNS boolean
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET lock_timeout = '100ms'
AS $hold$
#variable_conflict use_column
DECLARE
    holder int := (SELECT h.pid FROM {schema}.holding() AS h WHERE h.what = $1);
    mine   bigint;
BEGIN
    IF holder IS NOT NULL THEN
        RETURN holder = pg_backend_pid();
    END IF;
    BEGIN
        INSERT INTO {schema}.holds (what) VALUES ($1) ON CONFLICT DO NOTHING;
        -- In a long transaction, sessions are otherwise listed as they were at the first look.
        PERFORM pg_stat_clear_snapshot();
        PERFORM FROM {schema}.holds AS h WHERE h.what = $1 FOR UPDATE SKIP LOCKED;
    EXCEPTION WHEN lock_not_available OR serialization_failure THEN
        -- The database may have another level of isolation by default.
        RETURN false;
    END;
    -- Another session may have taken it, and unlocked the line, between the first look and this one.
    IF NOT FOUND OR EXISTS (SELECT FROM {schema}.holding() AS h WHERE h.what = $1) THEN
        RETURN false;
    END IF;
    LOOP
        -- Nobody can guess the number, and take it first.
        mine := ('x' || translate(left(gen_random_uuid()::text, 18), '-', ''))::bit(64)::bigint;
        EXIT WHEN pg_try_advisory_lock(mine);
    END LOOP;
    UPDATE {schema}.holds AS h
       SET pid = pg_backend_pid(), key = mine, since = clock_timestamp(),
           -- Not session_user, which a superuser can change.
           role = (SELECT a.usesysid FROM pg_stat_get_activity(pg_backend_pid()) AS a)
     WHERE h.what = $1;
    RETURN true;
END
$hold$;
