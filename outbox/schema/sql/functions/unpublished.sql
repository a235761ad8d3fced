-- Returns the name of a relay that has not published all committed rows of a leaf. The result
-- is '' if there is no relay at all, and NULL if everything is published. The queries probe
-- indexes, so their cost does not depend on the number of rows.
CREATE OR REPLACE FUNCTION {schema}.unpublished(leaf regclass) RETURNS text
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
    -- FOUND is true if the loop had a row.
    RETURN CASE WHEN FOUND THEN NULL ELSE '' END;
END
$unpublished$;
