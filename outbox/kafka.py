"""Common parts of our Kafka clients: logger, partitioner, and a first connection."""

import logging
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, Protocol
from weakref import ref

from outbox.envelope import UNREAD_HEADERS, Pair, unread
from outbox.event import MOST_HEADERS
from outbox.secrets import Reread, fresh_all

PARTITIONER = {"partitioner": "murmur2_random"}
"""
Every producer needs it: librdkafka's default is not Java's, and a key would lie in two partitions.
"""

_OF_URLS = str.maketrans("+/", "-_")
_NO_ID = "A" * 22

MOST_BYTES = 100_000_000
"""Most bytes of a request that brokers and clients take, unless they are set otherwise."""

_QUIET_SECONDS = 30.0
_MOST_KNOWN = 1_000

# The parts that vary between lines: the client, and how often and how long it has tried.
_VARYING = re.compile(r"[^\[\]]+#(consumer|producer)-\d+| \(after \d+ms.*$")


class Repeated(logging.Filter):
    """Lets a line through once in `_QUIET_SECONDS`, and counts the ones held back in between."""

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.Lock()
        self._known: dict[str, tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether `record` is logged; below a warning it always is."""
        if record.levelno < logging.WARNING:
            return True
        text, now = record.getMessage(), time.monotonic()
        line = _VARYING.sub("", text)
        with self._lock:
            until, kept = self._known.get(line, (0.0, 0))
            if now < until:
                self._known[line] = (until, kept + 1)
                return False
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            self._known[line] = (now + _QUIET_SECONDS, 0)
        if kept:
            record.msg, record.args = f"{text} (… and {kept} more like it since)", ()
        return True


@cache
def kafka_logger(name: str) -> logging.Logger:
    """
    Return the logger `name`, to pass to a Kafka client.

    An application that has not set up logging sees none of it: the errors say enough.
    """
    log = logging.getLogger(name)
    log.addFilter(Repeated())
    log.addHandler(logging.NullHandler())
    return log


def number(text: object) -> int:
    """
    Return the number in a property, as the client reads it: like C, it takes 0x10 and "10 ms".

    Raises:
        ValueError: it begins with none.
    """
    match = _NUMBER.match(str(text))
    if match is None:
        msg = f"{text!r} is not a number"
        raise ValueError(msg)
    sign, hexadecimal, octal, decimal = match.groups()
    found = int(hexadecimal, 16) if hexadecimal else int(octal, 8) if octal else int(decimal)
    return -found if sign == "-" else found


_NUMBER = re.compile(
    r"\s*([+-]?)(?:0[xX]([0-9a-fA-F]{1,30})|(0[0-7]{0,30})|([1-9][0-9]{0,30}))", re.ASCII
)


def topic_id(told: object) -> str | None:
    """
    Return the id of a topic as Kafka's own tools write it; None: the broker has none.

    `told` is what the client says, whose text has two other characters of base64.
    """
    text = str(told).translate(_OF_URLS)
    return None if text in {"", _NO_ID} else text


class Client(Protocol):
    """A producer of librdkafka."""

    def list_topics(self, topic: str, timeout: float, /) -> object: ...


def reach(producer: Client, topic: str, timeout: float) -> None:
    """
    Wait until `producer` is connected to a broker of the cluster; at most twice `timeout` seconds.

    As long as librdkafka knows no broker, it asks for its transaction coordinator again only after
    500 ms. The first answer may come over the bootstrap connection, which librdkafka then gives
    up; the second comes over one that stays.

    Raises:
        KafkaException: no broker answers in time.
    """
    for _ in range(2):
        producer.list_topics(topic, timeout)


class Told(Protocol):
    """An error of librdkafka about a client."""

    def code(self) -> int: ...


class Named(Protocol):
    """A client of librdkafka that has a user and a password."""

    def set_sasl_credentials(self, username: str, password: str, /) -> None: ...


_USERNAME, _PASSWORD = "sasl.username", "sasl.password"  # the property's name
# librdkafka's own code for a broker that refuses user and password.
_AUTHENTICATION = -169
# librdkafka says the same error of a broker only once in 30 s, and a broker often has the new
# password before the place where we read it.
_LOOK_SECONDS = 35.0
_FIRST_PAUSE, _LONGEST_PAUSE = 0.25, 4.0


class Credentials:
    """
    User and password of one client, which it gets anew after a broker has refused them.

    A client that lives long connects again and again. `heard` belongs among its properties, as
    `error_cb`, and `keep` follows when it is made. After a refusal they are read again for 35
    seconds, because librdkafka is silent about the next ones for 30.
    """

    def __init__(
        self, properties: Mapping[str, Any], also: Callable[[Any], object] = lambda _: None
    ) -> None:
        """`also` is called with each error of the client, too."""
        self._given = {name: properties.get(name, "") for name in (_USERNAME, _PASSWORD)}
        self._change = any(isinstance(each, Reread) for each in self._given.values())
        self._also = also
        self._client: Named | None = None
        self._known: tuple[str, str] | None = None
        self._refused = threading.Event()
        self._lock = threading.Lock()
        self._until: float | None = None
        """When the thread that looks ends; None: there is none."""

    @property
    def change(self) -> bool:
        """Return whether they may be others when they are read again."""
        return self._change

    def keep(self, client: Named) -> None:
        """Renew those of `client` from now on."""
        if self._change:  # otherwise the two would only keep each other from their end
            self._client = client

    def let_go(self) -> None:
        """Forget the client, which ends with its last reference."""
        self._client, self._change = None, False
        self._refused.set()

    def heard(self, error: Told) -> None:
        """Take an error of the client; read again in a thread, because a command may take long."""
        self._also(error)
        if not self._change or error.code() != _AUTHENTICATION:
            return
        with self._lock:
            has_thread, self._until = self._until is not None, time.monotonic() + _LOOK_SECONDS
            self._refused.set()
        if not has_thread:
            threading.Thread(
                target=_look, args=(ref(self), self._refused), name="secrets", daemon=True
            ).start()

    def renew(self) -> bool:
        """Read again, and give the client what has changed; return whether to go on with that."""
        with self._lock:
            if not self._change or self._until is None or time.monotonic() > self._until:
                self._until = None
                return False
        found = fresh_all(self._given, anew=True)
        now, client = (found[_USERNAME], found[_PASSWORD]), self._client
        if client is not None and now != self._known:
            try:
                client.set_sasl_credentials(*now)
            except RuntimeError:  # it was closed
                self.let_go()
            except Exception:  # noqa: BLE001  # it cannot take these, and perhaps the next ones
                return True
            self._known = now
        return True


def _look(kept: "ref[Credentials]", refused: threading.Event) -> None:
    """Renew credentials after a refusal; they may go, with their client, in a pause."""
    pause = _FIRST_PAUSE
    while True:
        if refused.is_set():
            refused.clear()
            pause = _FIRST_PAUSE
        credentials = kept()
        if credentials is None or not credentials.renew():
            return
        del credentials
        refused.wait(pause)
        pause = min(2 * pause, _LONGEST_PAUSE)


def fields_of(message: Any) -> tuple[Any, ...]:  # noqa: ANN401  # the client's own types say less
    """Return the fields of a `Record` from a message of the client, without making one."""
    return (
        message.topic(),
        message.partition(),
        message.offset(),
        message.timestamp()[1],
        message.key(),
        message.value(),
        headers_of(message),
    )


def headers_of(message: Any) -> Sequence[Pair]:  # noqa: ANN401  # the client's own types say less
    """
    Return the headers of a message; what stands for them if they cannot be read, or are too many.

    `UNREAD_HEADERS` does if the name of one is not UTF-8.

    Nothing else may ask a message for them first: after its error, the client returns a list with
    holes, and Python crashes when it looks at one. That the client says so by an error is usual,
    and not certain.
    """
    try:
        found: Sequence[Pair] = message.headers() or ()
    except (SystemError, UnicodeDecodeError):
        message.set_headers(list(UNREAD_HEADERS))
        return UNREAD_HEADERS
    if len(found) > MOST_HEADERS:
        # Each takes forty times its bytes, and the message would keep them.
        stand_in = unread(len(found))
        message.set_headers(list(stand_in))
        return stand_in
    return found
