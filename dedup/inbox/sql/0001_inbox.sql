-- The events that each consumer has handled, for as long as the retention says.
--
-- Eight tables form a ring and take turns; TRUNCATE of a whole table removes its rows. A consumer
-- looks for an event in every table that holds rows, and inserts it into the current one. While
-- the turn passes on, it inserts into both tables, until no transaction is left that knows only
-- the old one. Two transactions with the same event therefore always meet at one unique index,
-- whatever their isolation, and however long they take.

CREATE TABLE {schema}.handled (
    slot       smallint NOT NULL,
    -- The consumer group.
    consumer   text NOT NULL,
    id         text NOT NULL,
    round      int NOT NULL,
    -- In milliseconds, where the handler asked for another round.
    again      bigint,
    handled_at timestamptz NOT NULL DEFAULT now()
) PARTITION BY LIST (slot);

COMMENT ON TABLE {schema}.handled IS
    'Events that were handled, each with the rows of its handler''s own transaction.';

CREATE TABLE {schema}.slots (
    slot  smallint PRIMARY KEY,
    began timestamptz,
    ended timestamptz
);

DO $ring$
BEGIN
    FOR slot IN 0..7 LOOP
        EXECUTE format(
            $ddl$CREATE TABLE {schema}.handled_%1$s PARTITION OF {schema}.handled
                   (PRIMARY KEY (consumer, id, round)) FOR VALUES IN (%1$s)$ddl$, slot);
        EXECUTE format($ddl$ALTER TABLE {schema}.handled_%1$s ALTER slot SET DEFAULT %1$s $ddl$,
                       slot);
        INSERT INTO {schema}.slots VALUES (slot, CASE slot WHEN 0 THEN now() END);
    END LOOP;
END
$ring$;

-- A transaction reads a sequence as it is at the moment, even if its snapshot is older. Half of
-- `phase`, modulo 8, is the current slot. If `phase` is odd, consumers insert into the next one too.
CREATE SEQUENCE {schema}.phase MINVALUE 0 START 0;
-- The slots that hold something, one bit each.
CREATE SEQUENCE {schema}.live MINVALUE 0 START 1;
-- All transactions below this one that inserted into a slot of the past are over.
CREATE SEQUENCE {schema}.barrier MINVALUE 0 START 0;
SELECT setval($name${schema}.phase$name$, 0), setval($name${schema}.live$name$, 1),
       setval($name${schema}.barrier$name$, 0);

-- The next value of `barrier`, and the phase that it belongs to.
CREATE TABLE {schema}.pending (
    phase   bigint PRIMARY KEY,
    barrier bigint NOT NULL
);
