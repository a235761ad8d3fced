-- Claims a partition for a consumer, and returns the number of the claim.
CREATE OR REPLACE FUNCTION {schema}.claim(consumer text, topic text, partition int) RETURNS bigint
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $claim$
#variable_conflict use_column
DECLARE
    mine   bigint;
    before bigint;
BEGIN
    INSERT INTO {schema}.claims (consumer, topic, partition, claim)
    VALUES ($1, $2, $3, nextval($name${schema}.claim_numbers$name$))
        ON CONFLICT DO NOTHING RETURNING claim INTO mine;
    IF FOUND THEN
        RETURN mine;
    END IF;
    SELECT claim INTO before FROM {schema}.claims c
     WHERE c.consumer = $1 AND c.topic = $2 AND c.partition = $3 FOR UPDATE;
    -- A transaction that is about to commit was first, so the claim waits for it.
    PERFORM pg_advisory_xact_lock(hashtextextended($name${schema}.claims$name$, before));
    UPDATE {schema}.claims c
       SET claim = nextval($name${schema}.claim_numbers$name$), claimed_at = now()
     WHERE c.consumer = $1 AND c.topic = $2 AND c.partition = $3 RETURNING claim INTO mine;
    RETURN mine;
END
$claim$;
