-- Leaves are tables below `events` that take turns, so that TRUNCATE removes published rows.
--
-- They inherit from `events`. A writer inserts into a leaf without routing, and the old table becomes
-- the parent as it stands, with its rows: Postgres does not rewrite, scan or rename it.

-- The lock is exclusive for a moment. A relay that is just reading would not look into the leaves,
-- and yet it would pass the rows that writers put there meanwhile.
DO $lock$
DECLARE
    before CONSTANT text := current_setting('lock_timeout');
BEGIN
    PERFORM set_config('lock_timeout', '5s', true);
    LOCK TABLE {schema}.events IN ACCESS EXCLUSIVE MODE;
    PERFORM set_config('lock_timeout', before, true);
EXCEPTION WHEN lock_not_available THEN
    RAISE lock_not_available USING MESSAGE =
        'outbox: a transaction has kept the events table open for 5 s, and writers wait behind'
        ' this upgrade; nothing was changed. Run it again when that transaction (a writer, a dump;'
        ' see pg_stat_activity) has ended';
END
$lock$;

-- The number of the leaf that writers write to. A sequence is read without a lock, and leaves no
-- dead row when it changes. Nothing depends on the number: any leaf may get rows at any time.
CREATE SEQUENCE {schema}.leaf MINVALUE 0 START 0;
SELECT setval($leaf${schema}.leaf$leaf$, 0);

DO $leaves$
DECLARE
    -- The publication carries the rows that writers insert while the capture changes. It covers
    -- only those inheriting tables that existed when it was made.
    publication CONSTANT text := (
        SELECT p.pubname FROM pg_publication p JOIN pg_class c
               ON p.pubname = 'dovecote_' || c.relnamespace
         WHERE c.oid = $events${schema}.events$events$::regclass);
    positions CONSTANT text := pg_get_serial_sequence($events${schema}.events$events$, 'position');
    leaf text;
BEGIN
    FOR number IN 0..3 LOOP
        leaf := format($name${schema}.events_%s$name$, number);
        -- Autovacuum would find nothing to do, and would delay TRUNCATE.
        EXECUTE format(
            $ddl$CREATE TABLE %s (PRIMARY KEY (position)) INHERITS ({schema}.events)
                   WITH (autovacuum_enabled = off, toast.autovacuum_enabled = off)$ddl$, leaf);
        EXECUTE format('ALTER TABLE %s ALTER position SET DEFAULT nextval(%L)', leaf, positions);
        EXECUTE format('CREATE INDEX events_%s_xid ON %s (xid)', number, leaf);
        IF publication IS NOT NULL THEN
            EXECUTE format('ALTER PUBLICATION %I ADD TABLE ONLY %s', publication, leaf);
        END IF;
    END LOOP;
END
$leaves$;

-- Up to where each relay has published everything. Rows that one relay has not published stay. Each
-- relay writes its own line, and only in the session that has the active role.
CREATE TABLE {schema}.relays (
    name         text PRIMARY KEY,
    since        pg_snapshot NOT NULL,
    -- A window is under way: the relay has published what `until` sees, up to `position`.
    until        pg_snapshot,
    position     bigint NOT NULL,
    confirmed_at timestamptz NOT NULL
) WITH (fillfactor = 50);
