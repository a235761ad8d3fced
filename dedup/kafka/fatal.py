"""Decide which errors of Kafka's client are its end."""

from confluent_kafka import KafkaError

from outbox.errors import DovecoteError

_FATAL = {
    KafkaError._FATAL,  # noqa: SLF001  # the client's name for it
    KafkaError._FENCED,  # noqa: SLF001  # as above
    KafkaError.FENCED_INSTANCE_ID,
    KafkaError.UNRELEASED_INSTANCE_ID,
}
_UNRELEASED = KafkaError(KafkaError.UNRELEASED_INSTANCE_ID).str()


class StillUsed(DovecoteError):
    """The group has a member with this one's `instance`, which is alive or was killed just now."""


def reason_to_end(error: KafkaError) -> DovecoteError | None:
    """
    Return why the consumer must end, or None: the client goes on by itself.

    In a record's place, the client returns a fatal error without its flag. Afterwards it reads and
    commits nothing.
    """
    if not (error.fatal() or error.code() in _FATAL):
        return None
    text = error.str()
    advice = ""
    if "instance" in text:
        advice = "; another process has the same `instance`: give each process its own"
    msg = f"Kafka's client has ended this consumer for good: {text}{advice}"
    return StillUsed(msg) if _UNRELEASED in text else DovecoteError(msg)
