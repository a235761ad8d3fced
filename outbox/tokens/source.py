"""
One token for all Kafka clients of a process that have the same identity, renewed in a thread.

Every client gets the token by a callback, which librdkafka calls in a thread of its own: so a
client that nobody polls is renewed too. The callback only hands over what is there.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar
from weakref import WeakValueDictionary, finalize, ref

from confluent_kafka import KafkaException

from outbox import forks
from outbox.errors import BadSettings, NoClient, NoToken, first_line
from outbox.kafka import Credentials, Named
from outbox.secrets import fresh, fresh_all
from outbox.tokens.identity import KEY, MECHANISM, described, made, secrets_of
from outbox.tokens.token import (
    Ask,
    Token,
    TokenRefused,
    given_until,
    pause,
    renewal,
    taken,
)

_log = logging.getLogger("dovecote.tokens")
# Python would print warnings of a program that has not set up logging.
_log.addHandler(logging.NullHandler())

# How long a new client waits for the first token of a process, in seconds.
_PATIENCE = 10.0
_LOOK = 2.0
# A provider that takes longer than half of a token's life is not asked without a pause.
_SHORTEST = 0.2
_MOST_SAID = 300
_NO_KEYS = "thread local storage"
_FULL = (
    "this process cannot have another Kafka client: each takes one of the 1,024 keys for "
    "thread-local storage that the system gives a process. Share the work among processes that "
    "have fewer of them each, such as one `push` with a schema of its own for each thousand "
    "subscriptions"
)

Properties: TypeAlias = Mapping[str, Any]
C = TypeVar("C", bound=Named)


@dataclass(frozen=True, slots=True)
class Renewals:
    """The fate of the tokens of one identity so far, for metrics and health."""

    provider: str
    renewed: int
    failed: int
    expires: float
    """When the present token expires, in seconds since 1970; 0: there is none."""
    trouble: str
    """Why the last attempt failed; empty: it did not."""


class Source:
    """The token of one identity."""

    def __init__(self, text: str) -> None:
        """Begin to ask for one; `text` is an encoded table, perhaps one that is read again."""
        self._text, self.name = text, described(text)
        self._made: tuple[str, Ask] = ("", _nothing)
        self._token: Token | None = None
        self._renewed = self._failed = self._in_a_row = 0
        self._since, self._reason, self._is_refused = 0.0, "", False
        self._renewed_at = 0.0
        self._begin()
        finalize(self, _set, self._ended)
        forks.know(self)

    def _begin(self) -> None:
        self._changed = threading.Condition()
        self._ended = threading.Event()
        threading.Thread(
            target=_renew, args=(ref(self), self._ended), name="dovecote tokens", daemon=True
        ).start()

    def forked(self) -> None:
        """Renew with a thread of this process; called automatically in a forked process."""
        self._begin()
        finalize(self, _set, self._ended)

    def give(self, _: str = "") -> tuple[str, float, str, dict[str, str]]:
        """
        Return the present token as librdkafka takes it; it calls this before the token expires.

        Raises:
            NoToken: there was none yet.
        """
        token = self._token
        if token is None:
            raise NoToken(self.trouble or f"{self.name} has given no token yet")
        until = given_until(self._renewed_at, time.time())
        return token.value, until, token.principal, dict(token.extensions)

    def require(self, patience: float = _PATIENCE) -> None:
        """
        Wait for the first token.

        Raises:
            BadSettings: the provider refuses to give one.
            NoToken: the provider has given none in time.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._token or self._is_refused, patience)
            if self._token is not None:
                return
            said, is_refused = self._reason, self._is_refused
        if is_refused:
            msg = f"[kafka.identity]: {self.name} refuses to give a token: {said}"
            raise BadSettings(msg)
        msg = f"{self.name} gives no token: {said or 'no answer yet'}"
        raise NoToken(msg)

    @property
    def trouble(self) -> str:
        """Why the token cannot be renewed, and what that means; empty: it can."""
        with self._changed:
            reason, since, token = self._reason, self._since, self._token
        if not reason:
            return ""
        now = time.time()
        if token is None:
            then = "there was none yet"
        elif token.expires > now:
            then = f"the present one is valid for {token.expires - now:.0f} s more"
        else:
            then = f"the last one expired {now - token.expires:.0f} s ago"
        return f"no new Kafka token for {now - since:.0f} s: {self.name}: {reason}; {then}"

    @property
    def renewals(self) -> Renewals:
        """Return the present state."""
        trouble = self.trouble
        with self._changed:
            expires = 0.0 if self._token is None else self._token.expires
            name = self.name.partition(" ")[0]
            return Renewals(name, self._renewed, self._failed, expires, trouble)

    def turn(self) -> float:
        """Ask the provider once; return in how many seconds to ask again."""
        began = time.time()
        try:
            token = taken(self._provider()(), began)
        except Exception as error:  # noqa: BLE001  # a provider may raise anything, and is asked again
            return self._failing(error)
        with self._changed:
            since, failures = self._since, self._in_a_row
            self._token, self._reason, self._is_refused = token, "", False
            self._renewed_at = renewal(token, began)
            self._renewed += 1
            self._in_a_row = 0
            self._changed.notify_all()
        if failures:
            _log.info("Kafka tokens come again from %s, after %.0f s", self.name, began - since)
        return max(self._renewed_at - time.time(), _SHORTEST)

    def _provider(self) -> Ask:
        """Return the provider, made anew after a secret has changed."""
        text = str(fresh(self._text))
        if text != self._made[0]:
            self._made = text, made(text)
        return self._made[1]

    def _failing(self, error: Exception) -> float:
        said = self._without_secrets(first_line(error))[:_MOST_SAID]
        reason = (
            said
            if isinstance(error, OSError | TokenRefused | ValueError)
            else (f"{type(error).__name__}: {said}")
        )
        with self._changed:
            self._since = self._since if self._in_a_row else time.time()
            self._in_a_row += 1
            self._failed += 1
            is_new = reason != self._reason
            self._reason, self._is_refused = reason, isinstance(error, TokenRefused)
            wait = pause(self._in_a_row)
        # First, because a part may end when it hears of it.
        if is_new:
            _log.warning("%s; asking again", self.trouble)
        with self._changed:
            self._changed.notify_all()
        return wait

    def _without_secrets(self, text: str) -> str:
        known = secrets_of(str(fresh(self._text)))
        for each in (*known, *([self._token.value] if self._token else [])):
            text = text.replace(each, "***")
        return text


_sources: WeakValueDictionary[str, Source] = WeakValueDictionary()
_lock = threading.Lock()


class _Lock:
    """Makes the lock anew in a forked process: another thread may have held it."""

    def forked(self) -> None:
        global _lock  # noqa: PLW0603  # the module's own
        _lock = threading.Lock()


_forked = _Lock()
forks.know(_forked)


def source_of(properties: Properties) -> Source | None:
    """Return the source of tokens that these properties name, or None."""
    if (text := properties.get(KEY)) is None:
        return None
    with _lock:
        found = _sources.get(str(text))
        if found is None:
            found = _sources[str(text)] = Source(text)
        return found


def all_renewals() -> Iterator[Renewals]:
    """Yield the state of each identity of this process."""
    with _lock:
        found = list(_sources.values())
    for each in found:
        yield each.renewals


def for_client(properties: Properties, patience: float = _PATIENCE) -> dict[str, Any]:
    """
    Return properties as a new client takes them: secrets as they are now, and with a token.

    Raises:
        BadSettings: the provider refuses to give a token.
        NoToken: the provider has given none in time.
    """
    found = fresh_all(properties)
    if (source := source_of(properties)) is None:
        return found
    source.require(patience)
    del found[KEY]
    return {
        "security.protocol": "SASL_SSL",
        **found,
        "sasl.mechanism": "OAUTHBEARER",
        "oauth_cb": source.give,
    }


def lasting(
    kind: Callable[..., C],
    properties: Properties,
    log: logging.Logger,
    *,
    also: Callable[[Any], object] = lambda _: None,
    patience: float = _PATIENCE,
) -> C:
    """
    Return a client of class `kind` that lives long: passwords and tokens that change reach it.

    `also` is called with each error of the client.

    Raises:
        BadSettings, NoToken: as `for_client`.
        NoClient: as `client_of`.
    """
    credentials = Credentials(properties, also)
    given = {**for_client(properties, patience), "error_cb": credentials.heard}
    client = client_of(kind, given, log)
    credentials.keep(client)
    return client


def client_of(kind: Callable[..., C], given: Properties, log: logging.Logger) -> C:
    """
    Return a client of class `kind` with what `for_client` has returned.

    Raises:
        NoClient: the process has as many as it can, or the client does not take the properties.
            A certificate may just be replaced: for a moment its key is another one's.
    """
    try:
        return kind(given, logger=log)
    except KafkaException as error:
        msg = f"Kafka: {error.args[0].str()}"
        raise NoClient(msg) from error
    except RuntimeError as error:  # the client names nothing that a user could know
        if _NO_KEYS in str(error):
            raise NoClient(_FULL) from error
        raise


def refreshed(properties: Properties) -> dict[str, Any]:
    """Return properties with secrets as they are now; an identity stays one that is read again."""
    own = {KEY: properties[KEY]} if KEY in properties else {}
    return {**fresh_all(properties), **own}


def for_check(properties: Properties) -> dict[str, Any]:
    """
    Return properties for a client that is made only to see whether they are right.

    With an identity it has TLS as it will have, and shows no token: it would wait for one.
    """
    found = fresh_all(properties)
    if found.pop(KEY, None) is None:
        return found
    is_plain = str(found.get("security.protocol", "")).lower() == "sasl_plaintext"
    for name in MECHANISM:
        found.pop(name, None)
    return {**found, "security.protocol": "PLAINTEXT" if is_plain else "SSL"}


def await_token(
    properties: Properties, stop: threading.Event, say: Callable[[str], object]
) -> None:
    """
    Wait for the first token as long as the provider is away, until `stop` is set.

    Raises:
        BadSettings: the provider refuses to give a token.
    """
    if (source := source_of(properties)) is None:
        return
    while not stop.is_set():
        try:
            source.require(_LOOK)
        except NoToken as error:
            say(source.trouble or str(error))
        else:
            return


def _nothing() -> Token:
    msg = "no provider was made"
    raise AssertionError(msg)


def _set(event: threading.Event) -> None:
    event.set()


def _renew(source: "ref[Source]", ended: threading.Event) -> None:
    """Renew the token until nobody uses its source any more."""
    wait = 0.0
    while not ended.wait(wait):
        if (found := source()) is None:
            return
        wait = found.turn()
        del found
