-- An outbox has a random id of its own, whatever its name is. Numbers that are used once show whether
-- a database went back in time.

CREATE TABLE {schema}.identity (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    id  uuid NOT NULL DEFAULT gen_random_uuid()
);

INSERT INTO {schema}.identity DEFAULT VALUES;

COMMENT ON TABLE {schema}.identity IS
    'What Kafka knows this outbox by: transactional ids and progress records contain it.';

ALTER TABLE {schema}.claims
    -- False until the first progress of the name is in Kafka. Before that it has published nothing.
    ADD COLUMN began    boolean NOT NULL DEFAULT true,
    -- The id of the Kafka cluster that it publishes to.
    ADD COLUMN cluster  text,
    -- How often a relay has taken over.
    ADD COLUMN term     bigint NOT NULL DEFAULT 0,
    -- Progress in Kafka carries one of these two. A database that was put back to an earlier state
    -- has neither.
    ADD COLUMN nonce    uuid,
    ADD COLUMN previous uuid,
    -- Progress that was durable when the nonce was written, and the time of that by the relay's clock,
    -- in milliseconds since 1970. Events that were published by then were published before, and all
    -- others after. Rows that this progress does not pass stay where they are.
    ADD COLUMN mark      text,
    ADD COLUMN marked_at bigint;
