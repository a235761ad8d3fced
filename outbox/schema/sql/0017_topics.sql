-- Writers may be restricted to topics. Any number of events may be parked: the relay finds the keys
-- that are held without reading the events that wait.

-- The topics that each role may write to, once any role is restricted. Roles have names here: a
-- dump brings them to a server where they have other oids.
CREATE TABLE {schema}.writer_topics (
    role    text NOT NULL,
    -- A name, in which `*` stands for any text and `?` for one character.
    pattern text NOT NULL,
    -- The same for LIKE ... ESCAPE '!'.
    likened text NOT NULL,
    PRIMARY KEY (role, pattern)
);

COMMENT ON TABLE {schema}.writer_topics IS
    'Which topics each role may write to. Written by `dovecote init outbox --writer-role --topics`.';

-- Whether any role is restricted. This is a setting and not code: `dovecote init outbox --topics`
-- replaces the function, and no upgrade does.
CREATE FUNCTION {schema}.restricts_topics() RETURNS boolean
LANGUAGE sql IMMUTABLE
AS 'SELECT false';

-- Leads from each held key to the next one, and to whether an event holds a given key.
CREATE INDEX parked_held ON {schema}.parked (name, topic, sha256(key), number) WHERE holds;
-- The events that do not only wait for others.
CREATE INDEX parked_refused ON {schema}.parked (name, number) WHERE code <> 'BEHIND';
