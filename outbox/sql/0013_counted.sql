-- Headers without counts went nowhere, and a count that is NULL was 0: both are refused now. And
-- two shards that empty one leaf at once, each of which has read it, are no deadlock but a lock
-- that is not to be had. The rest of both functions stays as it is.
DO $corrections$
DECLARE
    definition text;
    correction record;
BEGIN
    FOR correction IN VALUES
        ('append_many', 'IF header_counts IS NOT NULL AND (',
         'IF header_counts IS NULL AND cardinality(header_names) > 0'
         ' OR header_counts IS NOT NULL AND ('),
        ('append_many', 'AND coalesce(min(own), 0) >= 0) IS NOT TRUE',
         'AND coalesce(min(own), 0) >= 0 AND count(own) = count(*)) IS NOT TRUE'),
        ('truncate_leaf', 'EXCEPTION WHEN lock_not_available THEN',
         'EXCEPTION WHEN lock_not_available THEN')
    LOOP
        SELECT pg_get_functiondef(p.oid) INTO STRICT definition
          FROM pg_proc AS p
         WHERE p.proname = correction.column1
           AND p.pronamespace = $schema${schema}$schema$::regnamespace;
        IF strpos(definition, correction.column2) = 0 THEN
            RAISE object_not_in_prerequisite_state USING MESSAGE = format(
                'outbox: the function %s is not that of version 12: restore it, and try again',
                correction.column1);
        END IF;
        EXECUTE replace(definition, correction.column2, correction.column3);
    END LOOP;
END
$corrections$;
