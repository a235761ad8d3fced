"""Put the engine together from the settings of a process."""

from collections.abc import Callable

from prometheus_client import CollectorRegistry

from dovecote.push.delivery.engine import Engine, HeldIn, Surroundings
from dovecote.push.rules.sending.addresses import networks
from dovecote.push.rules.sending.ports import Book, Delivers
from dovecote.push.settings import PushSettings


def engine(settings: PushSettings) -> Callable[[Book], tuple[Delivers, CollectorRegistry]]:
    """Return a function that makes the engine and its metrics for a book."""
    surroundings = Surroundings(
        brokers=settings.brokers,
        allow_addresses=networks(settings.allow_addresses),
        ca_file=settings.ca_file,
        origin=settings.origin,
        held=HeldIn(dsn=settings.dsn, schema=settings.schema_name),
    )

    def make(book: Book) -> tuple[Delivers, CollectorRegistry]:
        made = Engine(surroundings, book)
        return made, made.metrics.registry

    return make
