"""Decide whether a database and a Kafka cluster are the ones from which progress was made."""

from dataclasses import dataclass

from relay.rules.places.progress import Cursor, Newest, Progress

RECONCILE = "dovecote relay reconcile"
ACCEPT_RESTORED, ACCEPT_CLUSTER = "--accept-restored", "--accept-cluster"

UNFINISHED = "unfinished-"
"""How the nonce in progress begins until a reconciliation has ended."""


@dataclass(frozen=True, slots=True)
class Held:
    """The database's record of one name."""

    began: bool
    """Its first progress is in Kafka."""
    since: str
    cluster: str | None
    term: int
    nonce: str | None
    previous: str | None
    mark: Progress | None = None
    """The progress that was durable when the nonce was written."""
    marked_at: int | None = None
    """When the nonce was written, by the relay's clock, in milliseconds since 1970."""


def misfit(progress: Progress, held: Held | None) -> str | None:
    """Return why no relay goes on from `progress`, or None if it was made from this database."""
    if progress.nonce.startswith(UNFINISHED):
        # Its first record may stand at the beginning although Kafka has events.
        return (
            f"`{RECONCILE}` for outbox {progress.name!r} has not ended: run it again, with the "
            "same option; it goes on where it stopped"
        )
    if progress.cursor == Cursor():
        # Nothing has been published yet.
        return None
    if held is not None and progress.nonce in {held.nonce, held.previous}:
        return None
    return put_back_refusal(progress, "carries a nonce")


def put_back_refusal(progress: Progress, what: str) -> str:
    """Return the refusal of a database that lacks something (`what`) that progress mentions."""
    return (
        f"this database was put back to an earlier state: progress of outbox {progress.name!r}, "
        f"which reached {progress.cursor}, {what} that the database does not have. Kafka "
        "may have events of which there are no rows any more, and new transactions may have the "
        f"numbers of lost ones; `{RECONCILE}` reports what is missing where, and goes on with "
        f"`{ACCEPT_RESTORED}`"
    )


def to_be_found(progress: Progress, held: Held | None) -> Newest | None:
    """
    Return an event that the table must have if nothing published since the newest nonce is lost.

    None if the event may be gone because its place lies before the mark; the nonce covers those.
    """
    cursor, mark = progress.cursor, held.mark.cursor if held and held.mark else Cursor()
    if progress.newest is None or not (isinstance(cursor, Cursor) and isinstance(mark, Cursor)):
        return None
    event, xid = progress.newest, (cursor.until or cursor.since).xmax - 1
    on_the_way = mark.until is not None and mark.until.sees(xid) and event.at <= mark.position
    return None if mark.since.sees(xid) or on_the_way else event


def cluster_refusal(held: Held | None, name: str, cluster: str) -> str | None:
    """Return why an outbox must not be published to `cluster`, or None if it may be."""
    if held is None or held.cluster in {None, cluster}:
        return None
    return (
        f"outbox {name!r} is published to the Kafka cluster {held.cluster}, and this is cluster "
        f"{cluster}: what it has is a copy, or nothing. Correct `bootstrap.servers` or give this "
        f"relay a `name` of its own; if this cluster is to take the other's place, `{RECONCILE}` "
        f"reports what it lacks, and goes on with `{ACCEPT_CLUSTER}`"
    )
