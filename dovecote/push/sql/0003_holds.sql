-- Sessions hold what only one of them may: the active role, and the turn to change the capture.
--
-- Any role may take any advisory lock, so none of a known number is waited for. A session that holds
-- something has a lock of a random number, and this table says which session and which number that
-- is. Only functions write here. A line of a session that is gone, and its lock with it, says nothing.
-- Another session may get its process id by then, and take the number, which all may see while it is
-- locked. So the role that logged in counts as well.
CREATE TABLE {schema}.holds (
    what  text PRIMARY KEY,
    pid   int,
    key   bigint,
    role  oid,
    since timestamptz NOT NULL DEFAULT clock_timestamp()
);

COMMENT ON TABLE {schema}.holds IS
    'Which session holds what, for as long as it has the advisory lock of that number.';
