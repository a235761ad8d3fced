-- An event is known by its source and its id: `id@source`. A row of an earlier version has the id
-- alone. Nothing tells from which source that event was, so the row stands for the event of each
-- source until it is forgotten.

-- The slots that may hold such rows, one bit each.
CREATE SEQUENCE {schema}.by_id MINVALUE 0 START 0;
SELECT setval($name${schema}.by_id$name$, CASE
    -- The first slot of a new installation has begun in this transaction, and holds none.
    WHEN EXISTS (SELECT FROM {schema}.slots WHERE began < now()) THEN last_value ELSE 0 END)
  FROM {schema}.live;

COMMENT ON COLUMN {schema}.handled.id IS
    'The event: `id@source`, with a digest for what is too long. Before version 5: the id alone.';
