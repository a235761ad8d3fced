"""Relays that share an outbox."""

from contextlib import AbstractContextManager

from outbox.schema.capture import use_wal
from relay.operating import reshard as resharding
from relay.settings import RelaySettings
from tests.support.relayed import running
from tests.support.relaying import (
    Relays,
)


def wanted(fleet: Relays, shards: int, **more: int | str) -> RelaySettings:
    return RelaySettings.model_validate(
        {
            "dsn": {"env": "DSN"},
            "name": fleet.name,
            "kafka": {"bootstrap.servers": fleet.bootstrap},
            "shards": shards,
            "standby_poll": "50ms",
            **more,
        },
        context={"environ": {"DSN": fleet.dsn}},
    )


def crew_of(fleet: Relays, shards: int) -> AbstractContextManager[None]:
    """Run a relay for each shard, in this process."""
    return running([wanted(fleet, shards)] * shards)


def in_log(fleet: Relays, shards: int) -> None:
    """Have the outbox published in `shards` shards, and written to the log."""
    assert resharding.reshard(wanted(fleet, shards))
    assert len(use_wal(fleet.dsn, "outbox")) == shards
