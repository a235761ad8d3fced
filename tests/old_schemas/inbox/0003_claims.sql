-- Who has which partition. Each assignment claims its partition anew, and from then on nothing is
-- committed that was taken in the name of an older claim: a consumer that was paused for long may
-- wake up with records in its hands whose partition is another's by now.
--
-- It is looked at twice: before an event is handled, and when its transaction commits. Only then,
-- and for no longer, whoever claims next has to wait for it: a paused one holds nobody up.

CREATE TABLE {schema}.claims (
    consumer   text NOT NULL,
    topic      text NOT NULL,
    partition  int NOT NULL,
    claim      bigint NOT NULL UNIQUE,
    claimed_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (consumer, topic, partition)
);

COMMENT ON TABLE {schema}.claims IS
    'The newest claim of each partition: what was taken in the name of an older one is refused.';

CREATE SEQUENCE {schema}.claim_numbers;

DO $functions$
DECLARE
    -- What a transaction took in the name of, one each schema: ' 5 7 ', or 'kept' at its end.
    setting CONSTANT text :=
        'dovecote.claims_' || ($name${schema}$name$::regnamespace::oid)::text;
    claim CONSTANT text := $function$
CREATE FUNCTION {schema}.claim(consumer text, topic text, partition int) RETURNS bigint
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
    -- Whoever commits just now was first, and is waited for.
    PERFORM pg_advisory_xact_lock(hashtextextended($name${schema}.claims$name$, before));
    UPDATE {schema}.claims c
       SET claim = nextval($name${schema}.claim_numbers$name$), claimed_at = now()
     WHERE c.consumer = $1 AND c.topic = $2 AND c.partition = $3 RETURNING claim INTO mine;
    RETURN mine;
END
$claim$;$function$;
    take CONSTANT text := $function$
-- As `take`, in the name of a claim.
CREATE FUNCTION {schema}.take_claimed(consumer text, id text, round int, claim bigint)
RETURNS bigint
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $take$
DECLARE
    names text := current_setting('<<setting>>', true);
BEGIN
    IF NOT EXISTS (SELECT FROM {schema}.claims c WHERE c.claim = $4) THEN
        RAISE EXCEPTION USING ERRCODE = 'TAKEN', MESSAGE =
            'inbox: another member of the group has claimed the partition since';
    END IF;
    -- Before the event is inserted, which asks for it. (Assigned, for `PERFORM` is a query.)
    IF coalesce(names, '') IN ('', 'kept') THEN
        names := set_config('<<setting>>', ' ' || $4 || ' ', true);
    ELSIF position(' ' || $4 || ' ' IN names) = 0 THEN
        names := set_config('<<setting>>', names || $4 || ' ', true);
    END IF;
    RETURN {schema}.take($1, $2, $3);
END
$take$;$function$;
    keep CONSTANT text := $function$
CREATE FUNCTION {schema}.keep_claims() RETURNS trigger
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $keep$
DECLARE
    names  text := current_setting('<<setting>>', true);
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
        -- In one order for everybody.
        claims := ARRAY(SELECT n FROM unnest(claims) AS n ORDER BY n);
    END IF;
    FOREACH each IN ARRAY claims LOOP
        IF current_setting('transaction_isolation') = 'read committed' THEN
            -- In memory: row locks of many at a time would be written to disk.
            PERFORM pg_advisory_xact_lock_shared(
                hashtextextended($name${schema}.claims$name$, each));
            PERFORM FROM {schema}.claims c WHERE c.claim = each;
        ELSE
            -- An older snapshot does not see a newer claim; its lock on the row does.
            PERFORM FROM {schema}.claims c WHERE c.claim = each FOR SHARE;
        END IF;
        IF NOT FOUND THEN
            RAISE EXCEPTION USING ERRCODE = 'TAKEN', MESSAGE =
                'inbox: another member of the group has claimed the partition meanwhile';
        END IF;
    END LOOP;
    names := set_config('<<setting>>', 'kept', true);
    RETURN NULL;
END
$keep$;$function$;
BEGIN
    EXECUTE claim;
    EXECUTE replace(take, '<<setting>>', setting);
    EXECUTE replace(keep, '<<setting>>', setting);
    FOR slot IN 0..7 LOOP
        EXECUTE format(
            $trigger$CREATE CONSTRAINT TRIGGER keep_claims AFTER INSERT ON {schema}.handled_%s
                     DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
                     WHEN (current_setting(%L, true) <> '')
                     EXECUTE FUNCTION {schema}.keep_claims()$trigger$, slot, setting);
    END LOOP;
END
$functions$;

-- As `take_many`, each in the name of a claim.
CREATE FUNCTION {schema}.take_many_claimed(
    consumer text, ids text[], rounds int[], claims bigint[]
) RETURNS bigint[]
LANGUAGE sql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $take_many$
    SELECT array_agg(taken.before ORDER BY taken.nr)
      FROM (SELECT sorted.nr,
                   {schema}.take_claimed($1, sorted.id, sorted.round, sorted.claim) AS before
              FROM (SELECT e.id, e.round, e.claim, e.nr
                      FROM unnest($2, $3, $4) WITH ORDINALITY AS e (id, round, claim, nr)
                     ORDER BY e.id, e.round, e.nr OFFSET 0) AS sorted) AS taken;
$take_many$;

-- Who consumes so far may go on.
DO $keep_roles$
DECLARE
    here  oid := $name${schema}$name$::regnamespace;
    given record;
BEGIN
    FOR given IN
        SELECT DISTINCT acl.grantee::regrole AS role
          FROM pg_proc p, aclexplode(p.proacl) AS acl
         WHERE p.pronamespace = here AND p.proname = 'take'
           AND acl.privilege_type = 'EXECUTE' AND acl.grantee NOT IN (0, p.proowner)
    LOOP
        EXECUTE format(
            $grant$GRANT EXECUTE ON FUNCTION {schema}.claim, {schema}.take_claimed,
                   {schema}.take_many_claimed TO %s$grant$, given.role);
    END LOOP;
END
$keep_roles$;
