"""Decide whether a group has completed a record, from what it has committed."""

from dedup.rules.lanes import offset_metadata
from dedup.rules.starting import is_of_another
from dovecote.observe.find.rules.facts import Reach


def reach(
    offset: int,
    committed: int | None,
    metadata: str | None = None,
    *,
    topic_id: str | None = None,
    members: int | None = None,
) -> Reach:
    """
    Return how a committed offset lies to the record at `offset`.

    The metadata of a commit names what is completed beyond its offset. An offset of an earlier
    topic of the same name says nothing.
    """
    if committed is None or committed < 0 or is_of_another(metadata, topic_id):
        return Reach(completed=False, behind=None, begun=False, members=members)
    beyond = offset_metadata.decode(committed, metadata)
    completed = offset < committed or any(first <= offset < end for first, end in beyond)
    begun = any(end > offset for _, end in beyond)
    return Reach(completed, max(0, offset - committed), begun, members)
