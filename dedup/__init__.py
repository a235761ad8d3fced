"""
Consume topics, and decide per key which records are handled, with a reason for each other one.

`Consumer` and its settings are loaded on first use: code that only uses the policies does not need
Kafka.
"""

from typing import TYPE_CHECKING, Any

from dedup.results import Again, Dead, Done, NonRetriable, Output, Result, Retry, Skip

if TYPE_CHECKING:
    from dedup.consumer import Consumer
    from dedup.consumer_settings import ConsumerSettings

__all__ = [
    "Again",
    "Consumer",
    "ConsumerSettings",
    "Dead",
    "Done",
    "NonRetriable",
    "Output",
    "Result",
    "Retry",
    "Skip",
]


def __getattr__(name: str) -> Any:  # noqa: ANN401  # whatever is asked for
    if name == "Consumer":
        from dedup.consumer import Consumer

        return Consumer
    if name == "ConsumerSettings":
        from dedup.consumer_settings import ConsumerSettings

        return ConsumerSettings
    msg = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(msg)
