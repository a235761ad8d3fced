"""Relays that share an outbox."""

from contextlib import AbstractContextManager

import psycopg

from outbox.schema import slots
from outbox.schema.capture import installed as installed_capture
from outbox.schema.capture import use_wal
from relay.operating import reshard as resharding
from relay.postgres.capture.catalog import Look, look
from relay.rules.sharding import divided, shard_of
from relay.settings import RelaySettings
from tests.support.load import KEYS
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


def seen(fleet: Relays, shards: int) -> list[Look]:
    with psycopg.connect(fleet.dsn) as conn:
        return [look(conn, "outbox", shard) for shard in divided(fleet.name, shards)]


def slots_of(fleet: Relays) -> list[str]:
    with psycopg.connect(fleet.dsn) as conn:
        return slots.existing(conn, installed_capture(conn, "outbox").slot)


def names(fleet: Relays, shards: int) -> list[str]:
    with psycopg.connect(fleet.dsn) as conn:
        return slots.slot_names(installed_capture(conn, "outbox").slot, shards)


def key_of(shard: int, shards: int) -> str:
    return next(key for key in KEYS if shard_of(key.encode(), "", shards) == shard)
