-- A writer can ask whether its events have left the outbox. It asks rarely, and relays answer.

ALTER TABLE {schema}.relays
    -- The relay has published or parked every event of a transaction that this sees ...
    ADD COLUMN drained pg_snapshot,
    -- ... if this names this database. In a copy of it, transaction ids stand for others.
    ADD COLUMN drained_in text;

-- Counts questions. Relays see in a sequence that a writer waits, and it leaves no dead row.
CREATE SEQUENCE {schema}.asked;

CREATE INDEX parked_lane ON {schema}.parked
    USING hash (sha256(topic::bytea || E'\\x00'::bytea || key)) WHERE key IS NOT NULL;
