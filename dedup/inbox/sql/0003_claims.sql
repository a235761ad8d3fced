-- The partitions that each consumer has claimed. Each assignment claims its partition anew. From then
-- on nobody commits in the name of an older claim: a consumer that was paused for long may wake up
-- with records whose partition has passed to another one.
--
-- A consumer checks its claim twice: before it handles an event, and when the transaction commits.
-- A later claim waits only for that commit, so a consumer that pauses holds nobody up.

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
