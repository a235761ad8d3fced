-- The owner of each subscription, and who did what over the API.

-- An owner is a name that the settings give one or more tokens. Empty: it was made before there
-- were owners, or without a token.
ALTER TABLE {schema}.subscriptions ADD COLUMN owner text NOT NULL DEFAULT '';

-- The last requests of each actor. A process that writes some deletes those beyond the limit.
CREATE TABLE {schema}.audit (
    id      bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at      timestamptz NOT NULL DEFAULT now(),
    -- The name of the token; empty: no token that is known.
    actor   text NOT NULL,
    -- The owner of the subscription, if the actor could see it; otherwise empty.
    owner   text NOT NULL,
    -- Counted apart, so that refused requests do not displace those that did something.
    refused boolean NOT NULL,
    told    jsonb NOT NULL
);
CREATE INDEX ON {schema}.audit (actor, refused, id);
CREATE INDEX ON {schema}.audit (owner, id);

COMMENT ON TABLE {schema}.audit IS
    'Who did what over the API of `dovecote push serve`, and what was refused.';
