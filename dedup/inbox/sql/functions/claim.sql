-- Claims a partition for a consumer, and returns the number of the claim.
CREATE OR REPLACE FUNCTION {schema}.claim(consumer text, topic text, partition int) RETURNS bigint
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $claim$
#variable_conflict use_column
DECLARE
    mine bigint;
BEGIN
    IF current_setting('lock_timeout') = '0' THEN
        PERFORM set_config('lock_timeout', '10s', true);
    END IF;
    INSERT INTO {schema}.claims (consumer, topic, partition, claim)
    VALUES ($1, $2, $3, nextval($name${schema}.claim_numbers$name$))
        ON CONFLICT DO NOTHING RETURNING claim INTO mine;
    IF FOUND THEN
        RETURN mine;
    END IF;
    -- A transaction that is about to commit was first, so the claim waits for it, by its lock on the
    -- row. Only our functions can lock it: no other role can keep a claim waiting.
    UPDATE {schema}.claims c
       SET claim = nextval($name${schema}.claim_numbers$name$), claimed_at = now()
     WHERE c.consumer = $1 AND c.topic = $2 AND c.partition = $3 RETURNING claim INTO mine;
    RETURN mine;
EXCEPTION WHEN lock_not_available THEN
    RAISE lock_not_available USING MESSAGE = format(
        'inbox: partition %s of topic %L cannot be claimed before a transaction ends that has used the '
        'last claim: %s', $3, $2, {schema}.lockers(ARRAY['claims']));
END
$claim$;
