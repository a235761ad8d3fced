"""Whether a database and a Kafka cluster are those that progress was made of: decided here."""

from dataclasses import dataclass

from relay.rules.places.progress import Cursor, Newest, Progress

RECONCILE = "dovecote reconcile"
ACCEPT_RESTORED, ACCEPT_CLUSTER = "--accept-restored", "--accept-cluster"


@dataclass(frozen=True, slots=True)
class Held:
    """What the database remembers of one name."""

    began: bool
    """Its first progress is in Kafka."""
    since: str
    cluster: str | None
    term: int
    nonce: str | None
    previous: str | None
    mark: Progress | None = None
    """What was durable when the nonce was written."""
    marked_at: int | None = None
    """When that was, by the relay's clock, in milliseconds since 1970."""


def misfit(progress: Progress, held: Held | None) -> str | None:
    """Return why this database is not the one that `progress` was made of, or None if it is."""
    if progress.cursor == Cursor():
        # Nothing was published yet.
        return None
    if held is not None and progress.nonce in {held.nonce, held.previous}:
        return None
    return put_back_refusal(progress, "carries a nonce")


def put_back_refusal(progress: Progress, what: str) -> str:
    """Return what to tell of a database that does not have `what` progress says of it."""
    return (
        f"this database was put back to an earlier state: progress of outbox {progress.name!r}, "
        f"which reached {progress.cursor}, {what} that the database does not have. Kafka "
        "may have events of which there are no rows any more, and new transactions may have the "
        f"numbers of lost ones; `{RECONCILE}` tells what is missing where, and goes on with "
        f"`{ACCEPT_RESTORED}`"
    )


def to_be_found(progress: Progress, held: Held | None) -> Newest | None:
    """
    Return which event the table has if it has all that was published since the newest nonce.

    None if it may have gone, for its place lies before the mark; the nonce tells of all these.
    """
    cursor, mark = progress.cursor, held.mark.cursor if held and held.mark else Cursor()
    if progress.newest is None or not (isinstance(cursor, Cursor) and isinstance(mark, Cursor)):
        return None
    position, _ = progress.newest
    newest = (cursor.until or cursor.since).xmax - 1
    on_the_way = mark.until is not None and mark.until.sees(newest) and position <= mark.position
    return None if mark.since.sees(newest) or on_the_way else progress.newest


def cluster_refusal(held: Held | None, name: str, cluster: str) -> str | None:
    """Return why an outbox must not be published to `cluster`, or None if it may."""
    if held is None or held.cluster in {None, cluster}:
        return None
    return (
        f"outbox {name!r} is published to the Kafka cluster {held.cluster}, and this is cluster "
        f"{cluster}: what it has is a copy, or nothing. Correct `bootstrap.servers` or give this "
        f"relay a `name` of its own; if this cluster is to take the other's place, `{RECONCILE}` "
        f"tells what it lacks, and goes on with `{ACCEPT_CLUSTER}`"
    )
