"""Judge the copies of replication slots that standbys have: whether a failover would find them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from relay.rules.diagnosis import Finding

# As libpq numbers them: from this version on, servers copy slots to standbys by themselves.
_SYNCHRONISED = 170_000


@dataclass(frozen=True, slots=True)
class SlotCopy:
    """A slot of one name on a standby; `present` is False where there is none."""

    present: bool
    synced: bool = False
    temporary: bool = False
    lost: bool = False
    retained: int = 0
    """Bytes of the log that it holds back there."""


@dataclass(frozen=True, slots=True)
class StandbyLook:
    """The answers of one server of an operator's list; `error`: why there are none."""

    where: str
    error: str = ""
    version: int = 0
    is_standby: bool = False
    is_ours: bool = True
    """It has the same data as the server that the relay reads."""
    slots: Sequence[tuple[str, SlotCopy]] = ()


def of_standbys(looks: Sequence[StandbyLook]) -> Iterator[Finding]:
    """Yield the findings about the copies of slots on standbys."""
    for look in looks:
        if look.error:
            yield Finding(
                "warn",
                f"standby {look.where} was not looked at: {look.error}",
                "is it there, and does it let this role in?",
            )
        elif not look.is_ours:
            yield Finding(
                "warn",
                f"{look.where} is a server with other data, and no standby of this one",
                "name a standby of the server that `dsn` leads to",
            )
        elif look.is_standby and look.version >= _SYNCHRONISED:
            for name, copy in look.slots:
                yield _of_copy(look.where, name, copy)


def _of_copy(where: str, name: str, copy: SlotCopy) -> Finding:
    if not copy.present:
        return Finding(
            "warn",
            f"standby {where} has no copy of replication slot {name}: after a failover to it the "
            "slot is missing",
            "set sync_replication_slots and hot_standby_feedback there, and primary_slot_name; "
            "for CloudNativePG, replicationSlots.highAvailability.synchronizeLogicalDecoding",
        )
    if not copy.synced:
        return Finding(
            "fail",
            f"standby {where} has a replication slot {name} of its own, from when it was the "
            f"primary: nothing moves it, it holds back {copy.retained:,} bytes of the log there, "
            "and a failover to it would go on from there or find the slot lost",
            f"on that standby: SELECT pg_drop_replication_slot('{name}'); the server then copies "
            "the slot anew",
        )
    if copy.lost:
        return Finding(
            "warn",
            f"standby {where} has a copy of replication slot {name} that was invalidated: after "
            "a failover to it the slot is lost",
            "see invalidation_reason in its pg_replication_slots; the server copies the slot anew",
        )
    if copy.temporary:
        return Finding(
            "warn",
            f"standby {where} has not yet finished its first copy of replication slot {name}",
            "look again soon: until then a failover to it loses the slot",
        )
    return Finding("ok", f"standby {where} has a copy of replication slot {name}")
