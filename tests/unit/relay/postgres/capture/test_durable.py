"""A batch handed over before it is on disk is published once it is, and not otherwise."""

import pytest

from relay.errors import Outage
from relay.postgres.capture.durable import Pending
from relay.relay import _require_kept


def broken() -> Pending:
    """Return a batch that may not have been written to disk."""
    pending = Pending()

    def breaks() -> None:
        msg = "the server is gone"
        with pending:
            raise OSError(msg)

    with pytest.raises(OSError, match="gone"):
        breaks()
    return pending


def test_it_is_known_when_the_block_has_ended_well() -> None:
    with Pending() as pending:
        assert not pending.wait(0)
    assert pending.wait(0)


def test_it_is_never_known_when_the_block_has_not() -> None:
    assert not broken().wait(0)


def test_a_batch_waits_for_all_its_parts() -> None:
    with Pending() as fine:
        pass
    _require_kept([None, fine.wait])
    with pytest.raises(Outage, match="not known to be on disk"):
        _require_kept([fine.wait, None, broken().wait])
