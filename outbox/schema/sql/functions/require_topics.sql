-- Returns true if the session's role may write to these topics, and raises otherwise.
--
-- The role is the one that the session has logged in as, or has set with SET ROLE. In a function
-- with SECURITY DEFINER Postgres shows no other, so such a function lets nobody write to more topics.
CREATE OR REPLACE FUNCTION {schema}.require_topics(topics text[]) RETURNS boolean
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $require_topics$
DECLARE
    writer CONSTANT text := CASE current_setting('role') WHEN 'none' THEN session_user
                            ELSE current_setting('role') END;
    topic text;
BEGIN
    FOR topic IN SELECT DISTINCT each FROM unnest(topics) AS each LOOP
        IF NOT EXISTS (
                SELECT FROM {schema}.writer_topics AS w
                 WHERE w.role = writer
                   AND topic LIKE w.likened ESCAPE '!')
           AND NOT EXISTS (
                SELECT FROM {schema}.writer_topics AS w, pg_roles AS r
                 WHERE r.rolname = w.role AND pg_has_role(writer, r.oid, 'USAGE')
                   AND topic LIKE w.likened ESCAPE '!')
           AND NOT pg_has_role(writer, (
                SELECT relowner FROM pg_class
                 WHERE oid = $name${schema}.writer_topics$name$::regclass), 'USAGE') THEN
            RAISE insufficient_privilege USING
                MESSAGE = format('outbox: role %I may not write to topic %L', writer, topic),
                HINT = 'The options --writer-role and --topics of `dovecote init outbox` say where it may.';
        END IF;
    END LOOP;
    RETURN true;
END
$require_topics$;
