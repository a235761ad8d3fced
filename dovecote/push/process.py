"""Run all of `dovecote push serve` in one process: engine, subscriptions, API and page."""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from prometheus_client import CollectorRegistry

from dovecote.push.api.app import application
from dovecote.push.api.caller import Owners
from dovecote.push.api.control import Control
from dovecote.push.api.web import Listening, page, served, state
from dovecote.push.delivery.engine import Engine, HeldIn, Surroundings
from dovecote.push.rules.sending.addresses import networks
from dovecote.push.rules.sending.ports import Book, Delivers
from dovecote.push.settings import PushSettings
from dovecote.push.store.audit import Audit
from dovecote.push.store.feed import Feed
from dovecote.push.store.journal import Journal
from dovecote.push.store.notes import Notes
from dovecote.push.store.secrets import Keys, References
from dovecote.push.store.store import Store
from dovecote.push.store.tables import Tables


@dataclass(frozen=True, slots=True)
class Running:
    """The parts that run in this process."""

    at: Listening
    feed: Feed


@contextmanager
def running(
    settings: PushSettings,
    make: Callable[[Book], tuple[Delivers, CollectorRegistry]],
    environ: Mapping[str, str] = os.environ,
) -> Iterator[Running]:
    """
    Deliver the subscriptions in the database, and serve the API, until the block ends.

    `make` takes the book in which the engine notes its attempts; it returns the engine and its
    metrics.

    Raises:
        BadSettings: the address cannot be listened on, or a key is not valid.
        SchemaMissing: the tables are not installed.
    """
    keys = Keys(settings.secrets.keys)
    references = References(environ, settings.secrets.environment, settings.secrets.directory)
    with ExitStack() as stack:
        tables = Tables(settings.dsn, settings.schema_name)
        stack.callback(tables.close)
        tables.require()
        store, notes = Store(tables, keys), Notes(tables)
        store.reseal()
        audit = Audit(tables, most=settings.api.audit_entries)
        audit.start()
        stack.callback(audit.stop)
        journal = Journal(store, notes)
        journal.start()
        stack.callback(journal.stop)
        engine, registry = make(journal)
        engine.start()
        stack.callback(engine.stop)
        feed = Feed(
            tables,
            store,
            notes,
            engine,
            keys=keys,
            references=references,
            every=settings.poll.total_seconds(),
        )
        app = application(
            Control(
                store,
                notes,
                audit,
                brokers=settings.brokers,
                owners=Owners(settings.api.owned_ids()),
            ),
            page(),
            state(registry, lambda: feed.health.failure),
            tokens=settings.api.scopes(),
            max_body=settings.api.max_body,
            note=audit.note,
        )
        at = stack.enter_context(served(app, settings.http.host, settings.http.port))
        feed.start()
        stack.callback(feed.stop)
        yield Running(at, feed)


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
