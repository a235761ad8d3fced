-- Leaves: tables below `events` that take turns, so that published rows go by TRUNCATE.
--
-- By inheritance: a leaf is written to without routing, and the table that is there becomes the
-- parent as it stands, rows and all, without being rewritten, scanned or renamed.

-- Exclusive, for the moment that this takes: a relay that is just reading would not look into the
-- leaves, and yet pass what writers put there in the meantime.
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

-- Which leaf is written to. A sequence, for it is read without a lock, and moved without leaving
-- a dead row behind. Nothing depends on its being right: any leaf may be written to at any time.
CREATE SEQUENCE {schema}.leaf MINVALUE 0 START 0;
SELECT setval($leaf${schema}.leaf$leaf$, 0);

DO $leaves$
DECLARE
    -- What is inserted while the capture changes is published by it. Of tables that inherit it
    -- takes those that were there when it was made.
    publication CONSTANT text := (
        SELECT p.pubname FROM pg_publication p JOIN pg_class c
               ON p.pubname = 'dovecote_' || c.relnamespace
         WHERE c.oid = $events${schema}.events$events$::regclass);
    positions CONSTANT text := pg_get_serial_sequence($events${schema}.events$events$, 'position');
    leaf text;
BEGIN
    FOR number IN 0..3 LOOP
        leaf := format($name${schema}.events_%s$name$, number);
        -- Autovacuum would find nothing to do, and be in the way of TRUNCATE.
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

-- The functions that write, with an INSERT for each leaf, each planned once a session: a single one
-- would have to be routed by a partitioned table, or planned anew each time.
DO $writers$
DECLARE
    one CONSTANT text := $one$
            INSERT INTO <<leaf>>
                ("time", id, topic, type, source, subject, content_type, key, value,
                 header_names, header_values)
            VALUES
                (append."time", append.id, append.topic, append.type,
                 append.source, append.subject, append.content_type, append.key,
                 append.value, append.header_names, append.header_values);$one$;
    many CONSTANT text := $many$
            IF header_counts IS NULL THEN
                INSERT INTO <<leaf>>
                    ("time", id, topic, type, source, subject, content_type, key, value)
                SELECT e."time", e.id, e.topic, e.type, e.source, e.subject, e.content_type,
                       e.key, e.value
                  FROM unnest(times, ids, topics, types, sources, subjects, content_types, keys,
                              "values")
                       WITH ORDINALITY
                       AS e ("time", id, topic, type, source, subject, content_type, key, value,
                             nr)
                 ORDER BY e.nr;
            ELSE
                INSERT INTO <<leaf>>
                    ("time", id, topic, type, source, subject, content_type, key, value,
                     header_names, header_values)
                SELECT e."time", e.id, e.topic, e.type, e.source, e.subject, e.content_type,
                       e.key, e.value,
                       append_many.header_names[e.last - e.own + 1 : e.last],
                       append_many.header_values[e.last - e.own + 1 : e.last]
                  FROM (SELECT u.*, sum(u.own) OVER (ORDER BY u.nr)::int AS last
                          FROM unnest(times, ids, topics, types, sources, subjects, content_types,
                                      keys, "values", header_counts)
                               WITH ORDINALITY
                               AS u ("time", id, topic, type, source, subject, content_type,
                                     key, value, own, nr)) AS e
                 ORDER BY e.nr;
            END IF;$many$;
    append CONSTANT text := $function$
CREATE OR REPLACE FUNCTION {schema}.append(
    topic text,
    key bytea,
    value bytea,
    type text,
    id uuid DEFAULT gen_random_uuid(),
    source text DEFAULT 'dovecote',
    subject text DEFAULT NULL,
    "time" timestamptz DEFAULT clock_timestamp(),
    content_type text DEFAULT NULL,
    header_names text[] DEFAULT NULL,
    header_values bytea[] DEFAULT NULL
) RETURNS void
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $append$
DECLARE
    own_prefix text;
BEGIN
    -- Until the end of the transaction: an event may be published before an asynchronous commit
    -- is on disk, and a crash of the server would then make the rows vanish, and not the event.
    IF current_setting('synchronous_commit') = 'off' THEN
        PERFORM set_config('synchronous_commit', 'on', true);
    END IF;
    IF {schema}.require_publishable(topic, type, source, "time")
            AND ((header_names IS NULL AND header_values IS NULL)
                 OR {schema}.require_headers(header_names, header_values)) THEN
        IF {schema}.writes_to_wal() THEN
            SELECT c.prefix INTO STRICT own_prefix FROM {schema}.capture AS c;
            PERFORM pg_logical_emit_message(true, own_prefix, {schema}.encoded(
                topic, key, value, type, id, source, subject, "time", content_type,
                header_names, header_values));
        ELSE
            CASE pg_sequence_last_value($leaf${schema}.leaf$leaf$)
            <<inserts>>
            END CASE;
        END IF;
    END IF;
END
$append$;
    $function$;
    append_many CONSTANT text := $function$
CREATE OR REPLACE FUNCTION {schema}.append_many(
    topics text[],
    keys bytea[],
    "values" bytea[],
    types text[],
    ids uuid[],
    sources text[],
    subjects text[],
    times timestamptz[],
    content_types text[],
    header_counts int[] DEFAULT NULL,
    header_names text[] DEFAULT NULL,
    header_values bytea[] DEFAULT NULL
) RETURNS void
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $append_many$
DECLARE
    own_prefix text;
BEGIN
    -- Until the end of the transaction: an event may be published before an asynchronous commit
    -- is on disk, and a crash of the server would then make the rows vanish, and not the event.
    IF current_setting('synchronous_commit') = 'off' THEN
        PERFORM set_config('synchronous_commit', 'on', true);
    END IF;
    -- unnest() would fill up what is short with NULL: a key could vanish without a word.
    IF (cardinality(topics) = ALL (ARRAY[
            cardinality(keys), cardinality("values"), cardinality(types), cardinality(ids),
            cardinality(sources), cardinality(subjects), cardinality(times),
            cardinality(content_types), coalesce(cardinality(header_counts), cardinality(topics))
        ])) IS NOT TRUE THEN
        RAISE invalid_parameter_value USING MESSAGE = 'append_many: arrays of different lengths';
    END IF;
    PERFORM {schema}.require_publishable(e.topic, e.type, e.source, e."time")
       FROM unnest(topics, types, sources, times) AS e (topic, type, source, "time");
    PERFORM {schema}.require_headers(header_names, header_values);
    IF header_counts IS NOT NULL AND (
        SELECT (sum(own) = ALL (ARRAY[cardinality(header_names), cardinality(header_values)])
                AND min(own) >= 0) IS NOT TRUE
          FROM unnest(header_counts) AS own
    ) THEN
        RAISE invalid_parameter_value USING MESSAGE =
            'append_many: header_counts do not add up to header_names and header_values';
    END IF;
    IF {schema}.writes_to_wal() THEN
        SELECT c.prefix INTO STRICT own_prefix FROM {schema}.capture AS c;
        PERFORM pg_logical_emit_message(true, own_prefix, {schema}.encoded(
                    e.topic, e.key, e.value, e.type, e.id, e.source, e.subject, e."time",
                    e.content_type,
                    append_many.header_names[e.last - e.own + 1 : e.last],
                    append_many.header_values[e.last - e.own + 1 : e.last]))
           FROM (SELECT u.*, sum(u.own) OVER (ORDER BY u.nr)::int AS last
                   FROM unnest(topics, keys, "values", types, ids, sources, subjects, times,
                               content_types, header_counts)
                        WITH ORDINALITY
                        AS u (topic, key, value, type, id, source, subject, "time",
                              content_type, own, nr)
                  ORDER BY u.nr) AS e;
    ELSE
        CASE pg_sequence_last_value($leaf${schema}.leaf$leaf$)
        <<inserts>>
        END CASE;
    END IF;
END
$append_many$;
    $function$;
    ones text := '';
    manies text := '';
    branch text;
    leaf text;
BEGIN
    FOR number IN 0..4 LOOP
        branch := format('WHEN %s THEN', number);
        leaf := format($events${schema}.events_%s$events$, number);
        IF number = 4 THEN
            -- No leaf has this number.
            branch := 'ELSE';
            leaf := $events${schema}.events$events$;
        END IF;
        ones := ones || branch || replace(one, '<<leaf>>', leaf) || E'\n';
        manies := manies || branch || replace(many, '<<leaf>>', leaf) || E'\n';
    END LOOP;
    EXECUTE replace(append, '<<inserts>>', ones);
    EXECUTE replace(append_many, '<<inserts>>', manies);
END
$writers$;

-- Up to where everything is published, by each relay that reads this outbox: what one of them has
-- not published stays. Each writes its own line, and only in the session that has the active role.
CREATE TABLE {schema}.relays (
    name         text PRIMARY KEY,
    since        pg_snapshot NOT NULL,
    -- Of a window under way: what is visible in `until` is published up to `position`.
    until        pg_snapshot,
    position     bigint NOT NULL,
    confirmed_at timestamptz NOT NULL
) WITH (fillfactor = 50);

CREATE FUNCTION {schema}.confirm(
    name text, since pg_snapshot, until pg_snapshot, "position" bigint
) RETURNS void
LANGUAGE sql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $confirm$
    INSERT INTO {schema}.relays AS r VALUES ($1, $2, $3, $4, clock_timestamp())
    ON CONFLICT (name) DO UPDATE SET
        (since, until, position, confirmed_at)
        = (excluded.since, excluded.until, excluded.position, excluded.confirmed_at)
$confirm$;

-- Leaf -1 is `events` itself, where rows are from before there were leaves.
CREATE FUNCTION {schema}.leaves()
RETURNS TABLE (number int, heap_bytes bigint, total_bytes bigint, live_rows bigint, written boolean)
LANGUAGE sql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $leaves$
    SELECT leaf.number, pg_relation_size(leaf.oid), pg_total_relation_size(leaf.oid),
           pg_stat_get_live_tuples(leaf.oid),
           leaf.number = pg_sequence_last_value($leaf${schema}.leaf$leaf$)
      FROM (SELECT substring(c.relname FROM '[0-9]+$')::int AS number, c.oid
              FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
             WHERE i.inhparent = $events${schema}.events$events$::regclass
             UNION ALL
            SELECT -1, $events${schema}.events$events$::regclass) AS leaf
     ORDER BY leaf.number
$leaves$;

CREATE FUNCTION {schema}.write_to_leaf(number int) RETURNS void
LANGUAGE sql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $write_to_leaf$
    SELECT setval($leaf${schema}.leaf$leaf$, number)
$write_to_leaf$;

-- Who has not published all committed rows of a leaf: the name of a relay, '' if there is none at
-- all, NULL if everything is published. Probes of indexes, however many rows there are.
CREATE FUNCTION {schema}.unpublished(leaf regclass) RETURNS text
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $unpublished$
DECLARE
    relay record;
    newest pg_snapshot;
    found_one boolean;
BEGIN
    FOR relay IN SELECT * FROM {schema}.relays LOOP
        newest := coalesce(relay.until, relay.since);
        EXECUTE format(
            'SELECT EXISTS (SELECT FROM ONLY %1$s WHERE xid >= pg_snapshot_xmax($1))'
            ' OR EXISTS (SELECT FROM ONLY %1$s WHERE xid = ANY ($2)'
            '            AND NOT pg_visible_in_snapshot(xid, $3))'
            ' OR ($4 AND EXISTS (SELECT FROM ONLY %1$s WHERE position > $5'
            '                    AND NOT pg_visible_in_snapshot(xid, $3)))', leaf)
        INTO found_one
        USING newest, ARRAY(SELECT pg_snapshot_xip(newest)), relay.since,
              relay.until IS NOT NULL, relay.position;
        IF found_one THEN
            RETURN relay.name;
        END IF;
    END LOOP;
    -- FOUND tells whether the loop had a row.
    RETURN CASE WHEN FOUND THEN NULL ELSE '' END;
END
$unpublished$;

-- Empty one leaf, if that loses nothing and makes nobody wait: returns `rotated`, or why not
-- (`locked`, `kept`, `unpublished by ...`). `keep` is how old its newest row must be.
CREATE FUNCTION {schema}.truncate_leaf(number int, keep interval) RETURNS text
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET lock_timeout = '5ms'
SET enable_seqscan = off
AS $truncate_leaf$
DECLARE
    leaf CONSTANT regclass := CASE WHEN number = -1 THEN $events${schema}.events$events$
                              ELSE format($events${schema}.events_%s$events$, number) END;
    newest timestamptz;
    reader text;
BEGIN
    -- With one snapshot for all of a transaction, what is committed in the meantime is not seen.
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE invalid_transaction_state USING
            MESSAGE = 'outbox: leaves are emptied in read committed transactions only';
    END IF;
    -- First without the lock, so that it is not taken in vain.
    EXECUTE format('SELECT appended_at FROM ONLY %s ORDER BY position DESC LIMIT 1', leaf)
    INTO newest;
    IF newest > clock_timestamp() - keep THEN
        RETURN 'kept';
    END IF;
    reader := {schema}.unpublished(leaf);
    IF reader IS NOT NULL THEN
        RETURN 'unpublished by ' || reader;
    END IF;
    BEGIN
        EXECUTE format('LOCK TABLE ONLY %s IN ACCESS EXCLUSIVE MODE', leaf);
    EXCEPTION WHEN lock_not_available THEN
        RETURN 'locked';
    END;
    -- Whoever has written here has ended, for the lock was to be had: new statements, with new
    -- snapshots, see every row that was ever committed.
    reader := {schema}.unpublished(leaf);
    IF reader IS NOT NULL THEN
        RETURN 'unpublished by ' || reader;
    END IF;
    EXECUTE format('TRUNCATE ONLY %s', leaf);
    -- The lock is not held until a standby answers: rows that come back after a failover are
    -- published, and passed.
    PERFORM set_config('synchronous_commit', 'local', true);
    RETURN 'rotated';
END
$truncate_leaf$;
