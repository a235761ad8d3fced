-- Headers without counts went nowhere, and a count that is NULL was 0: both are refused now. The
-- rest of the function stays as it is.
DO $counted$
DECLARE
    definition text;
    correction record;
BEGIN
    SELECT pg_get_functiondef(p.oid) INTO STRICT definition
      FROM pg_proc AS p
     WHERE p.proname = 'append_many' AND p.pronamespace = $schema${schema}$schema$::regnamespace;
    FOR correction IN VALUES
        ('IF header_counts IS NOT NULL AND (',
         'IF header_counts IS NULL AND cardinality(header_names) > 0'
         ' OR header_counts IS NOT NULL AND ('),
        ('AND coalesce(min(own), 0) >= 0) IS NOT TRUE',
         'AND coalesce(min(own), 0) >= 0 AND count(own) = count(*)) IS NOT TRUE')
    LOOP
        IF strpos(definition, correction.column1) = 0 THEN
            RAISE object_not_in_prerequisite_state USING MESSAGE =
                'outbox: append_many is not that of version 12: restore it, and try again';
        END IF;
        definition := replace(definition, correction.column1, correction.column2);
    END LOOP;
    EXECUTE definition;
END
$counted$;
