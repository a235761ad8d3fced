"""Run all of `dovecote push serve` in one process: engine, subscriptions, API and page."""

import logging
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from prometheus_client import CollectorRegistry
from prometheus_client.registry import Collector

from dovecote.process.health import StateNumbers
from dovecote.process.http.connections import Bounds
from dovecote.process.http.server import App, serve
from dovecote.process.memory import take_turns
from dovecote.process.tokens import ReadyWithTokens, TokenNumbers
from dovecote.push.api.access import hashed
from dovecote.push.api.app import application
from dovecote.push.api.caller import Owners
from dovecote.push.api.control import Control
from dovecote.push.api.own_token import default_file, made
from dovecote.push.api.web import metrics, page
from dovecote.push.delivery.engine import Engine, HeldIn, Surroundings
from dovecote.push.health import SubscriptionNumbers
from dovecote.push.rules.access.scope import Scope, everything
from dovecote.push.rules.access.shares import room_for
from dovecote.push.rules.sending.addresses import networks
from dovecote.push.rules.sending.ports import Book, Delivers
from dovecote.push.settings import ApiSettings, PushSettings
from dovecote.push.store.audit import Audit
from dovecote.push.store.feed import Feed
from dovecote.push.store.journal import Journal
from dovecote.push.store.notes import Notes
from dovecote.push.store.secrets import Keys, References
from dovecote.push.store.store import Store
from dovecote.push.store.tables import Tables

_log = logging.getLogger("dovecote.push")

# More connections than requests: probes are answered while that many requests are under way.
_OF_PROBES = 32
"""Connections beyond those of requests."""


@dataclass(frozen=True, slots=True)
class Listening:
    """The address of the server."""

    host: str
    port: int

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}"


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
    *,
    around: Callable[[App], App] | None = None,
) -> Iterator[Running]:
    """
    Deliver the subscriptions in the database, and serve the API, until the block ends.

    `make` takes the book in which the engine notes its attempts; it returns the engine and its
    metrics. `around` gets the application, and returns what is served in its place.

    Raises:
        BadSettings: the address cannot be listened on, a key is not valid, or there is no token.
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
        numbers: Collector = TokenNumbers(registry)
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
            turned=journal.turned,
        )
        feed.health.unrecorded = lambda: journal.trouble
        scopes = settings.api.scopes() or _own(settings.api, environ)
        known = ReadyWithTokens(feed.health)
        numbers = StateNumbers(
            "push", {}, known, SubscriptionNumbers(lambda: feed.health.reports, numbers)
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
            metrics(numbers),
            tokens=scopes,
            max_body=settings.api.max_body,
            note=audit.note,
        )
        http = settings.http
        port = stack.enter_context(
            serve(
                app if around is None else around(app),
                http.host,
                http.port,
                hosts=http.hosts,
                bounds=bounds(settings.api),
                health=known,
                # They name all subscriptions, also those that some token may not see.
                numbers=numbers if all(scope.sees_all for _, scope in scopes) else None,
            )
        )
        stack.enter_context(feed.health.asking(settings.brokers))
        feed.start()
        stack.callback(feed.stop)
        yield Running(Listening(http.host, port), feed)


def bounds(api: ApiSettings) -> Bounds:
    """Return the most that clients of the API can take; one token is made if none is given."""
    requests = room_for(max(1, len(api.tokens))).requests
    return Bounds(connections=requests + _OF_PROBES, requests=requests)


def _own(api: ApiSettings, environ: Mapping[str, str]) -> list[tuple[str, Scope]]:
    """Return the token of a process that is given none: every local user could ask without one."""
    file = api.token_file or default_file(environ)
    token = made(file)
    _log.info("the token of the API and the page is in %s", file)
    return [(hashed(token), everything("own", ""))]


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
        made = Engine(surroundings, book, crowded=take_turns)
        return made, made.metrics.registry

    return make
