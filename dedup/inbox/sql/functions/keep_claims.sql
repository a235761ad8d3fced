-- Checks at commit that nobody has claimed a partition since. A later claim waits only for this
-- moment, so a consumer that pauses holds nobody up.
CREATE OR REPLACE FUNCTION {schema}.keep_claims() RETURNS trigger
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $keep_claims$
DECLARE
    names  text := current_setting({schema}.claims_setting(), true);
    claims bigint[];
    each   bigint;
BEGIN
    IF names = 'kept' THEN
        RETURN NULL;
    ELSIF coalesce(names, '') = '' THEN
        RAISE EXCEPTION USING MESSAGE =
            'inbox: the transaction''s settings were reset, and with them whose it is';
    END IF;
    claims := string_to_array(trim(names), ' ');
    IF cardinality(claims) > 1 THEN
        -- Every transaction locks in the same order.
        claims := ARRAY(SELECT n FROM unnest(claims) AS n ORDER BY n);
    END IF;
    FOREACH each IN ARRAY claims LOOP
        -- A snapshot that is older does not see a newer claim, but a lock on the row meets it. An
        -- advisory lock would cost less, but any role could keep every commit waiting for it.
        PERFORM FROM {schema}.claims c WHERE c.claim = each FOR KEY SHARE SKIP LOCKED;
        IF NOT FOUND THEN
            -- Somebody claims the partition, or has claimed it.
            PERFORM {schema}.await_claim(each);
            PERFORM FROM {schema}.claims c WHERE c.claim = each FOR KEY SHARE;
        END IF;
        IF NOT FOUND THEN
            RAISE EXCEPTION USING ERRCODE = 'TAKEN', MESSAGE =
                'inbox: another member of the group has claimed the partition meanwhile';
        END IF;
    END LOOP;
    names := set_config({schema}.claims_setting(), 'kept', true);
    RETURN NULL;
END
$keep_claims$;
