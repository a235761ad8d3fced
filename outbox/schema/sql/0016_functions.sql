

COMMENT ON TABLE {schema}.parked IS
    'Events that cannot be published, and those that wait behind them. See `dovecote relay parked`.';
COMMENT ON TABLE {schema}.parked_commands IS
    'Commands for the active relay, in the order of their numbers. Written by `dovecote relay parked`.';
