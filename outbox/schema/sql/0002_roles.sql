-- PUBLIC has no rights. Each role that writes or relays gets its own.

-- The names that have published, and from which database. If progress of such a name is missing, it
-- was lost.
CREATE TABLE {schema}.claims (
    name              text NOT NULL,
    system_identifier text NOT NULL,
    database          bigint NOT NULL,
    since             timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (name, system_identifier, database)
);

COMMENT ON TABLE {schema}.claims IS
    'Outbox names that a relay has published under, in the database of that oid on that server.';
