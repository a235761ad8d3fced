"""Turn a record into an HTTP request in the form that an endpoint expects, unsigned."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal, NamedTuple, TypeAlias
from urllib.parse import quote, quote_from_bytes, urlsplit

from dedup.rules.identity import Identity, identity
from dedup.rules.policies.results import NonRetriable
from dovecote.push.rules.sending.bodies import is_json, structured
from dovecote.push.rules.sending.headers import (
    at_source,
    encoded,
    escaped,
    lines,
    printable,
    sendable,
    typed,
)
from dovecote.push.rules.sending.patterns import (
    Block,
    Blocks,
    Pattern,
    Patterns,
    Unclear,
    Values,
    standing,
)
from outbox import envelope
from outbox.envelope import Record
from outbox.tracing.headers import TRACESTATE, parent

Format: TypeAlias = Literal["plain", "cloudevents_binary", "cloudevents_structured"]

WITHOUT_BODY = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})

MOST_HEADERS = 100
"""The most headers of a request that come of its record."""
MOST_HEAD = 16_384
"""The most characters of those headers, and of the id."""

_PREFIX = "ce_"
_ATTRIBUTE = re.compile(r"[a-z0-9]{1,40}")
_LONGEST_NAME = len(_PREFIX) + 40
_UTF8 = frozenset({"utf-8", "utf8"})
_OURS = frozenset({"id", "specversion", "data"})
_AS_JSON = "Content-Type: application/json\r\n"
_STANDING = ("host", "user-agent", "content-type")


class Unsendable(NonRetriable):
    """The record can never be sent in the requested form."""


@dataclass(frozen=True, slots=True)
class Metadata:
    """The values of `QOH-*` headers that do not depend on the record."""

    broker: str
    consumer: str


@dataclass(frozen=True, slots=True)
class Origin:
    """The target of a URL's requests."""

    tls: bool
    host: str
    """As DNS knows it: a name in ASCII, or an address."""
    port: int

    @property
    def host_header(self) -> str:
        name = f"[{self.host}]" if ":" in self.host else self.host
        return name if self.port == (443 if self.tls else 80) else f"{name}:{self.port}"


class Request(NamedTuple):
    """One request, except for what each attempt adds; `target` is path and query."""

    id: str
    """`webhook-id`: the same over all attempts."""
    target: str
    lines: str
    """The headers for this record, as they are sent; those of the form are separate."""
    body: bytes
    event: str = ""
    """The id of the event."""
    is_first: bool = False
    """Whether the record has no history for sure: it is its first attempt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """The form of an endpoint's requests."""

    url: str
    method: str = "POST"
    query_param_key: str = "message"
    charset: str = "UTF-8"
    detect_json: bool = True
    """Whether a value that is JSON is sent as such if the record has no `content-type`."""
    headers: Mapping[str, str] = field(default_factory=dict)
    format: Format = "plain"
    metadata: Metadata | None = None
    """None: no `QOH-*` headers."""

    def origin(self) -> Origin:
        """
        Return the target of the requests.

        Raises:
            ValueError: the URL names no host and port for HTTP.
        """
        parts = urlsplit(self.url)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            msg = f"{self.url!r} is not an http:// or https:// URL with a host"
            raise ValueError(msg)
        tls = parts.scheme == "https"
        host = parts.hostname
        if not host.isascii():
            host = host.encode("idna").decode("ascii")
        return Origin(tls, host, parts.port or (443 if tls else 80))

    def standing(self) -> tuple[tuple[str, str], ...]:
        """
        Return the headers that all requests have; a subscription's own take precedence over ours.
        """
        ours = {
            "Host": self.origin().host_header,
            "User-Agent": "dovecote-push" if self.metadata is None else "Queue-Over-Http",
            "Accept": "*/*",
        }
        given = {name.lower() for name in self.headers}
        kept = [(name, value) for name, value in ours.items() if name.lower() not in given]
        if self.metadata is not None:
            kept.append(("QOH-Broker", printable(self.metadata.broker)))
            kept.append(("QOH-Consumer", printable(self.metadata.consumer)))
        return (*kept, *self.headers.items())


class Composer:
    """Makes requests of one form."""

    def __init__(self, form: Form, *, traced: bool = False) -> None:
        """
        Make requests of `form`; `traced`: each attempt brings its own trace context.

        Then the record's context is an attribute of CloudEvents, as their extension for tracing
        says. Otherwise it is in the headers.
        """
        self._form, self._traced = form, traced
        self._given = {name.lower() for name in form.headers}
        parts = urlsplit(form.url)
        self._path = quote(parts.path or "/", safe="/%:@!$&'()*+,;=~-._")
        self._query = parts.query
        self.target = f"{self._path}?{self._query}" if self._query else self._path
        self._has_body = form.method not in WITHOUT_BODY
        self._typed = "content-type" in self._given
        self._transcodes = form.charset.lower() not in _UTF8
        self._detects = form.detect_json and self._has_body and not self._typed
        self._detects = self._detects and not self._transcodes
        self._patterns = Patterns(_attribute_in, most=MOST_HEADERS)
        self._blocks = Blocks(self._block)
        # The others are for few endpoints, and take the longer way.
        common = form.format == "cloudevents_binary" and self._has_body and form.metadata is None
        self._is_common = common and not self._transcodes and not traced

    def request(self, record: Record, known: Identity | None = None) -> Request:
        """
        Return the request for `record`; `known` is the identity of its event, if that is at hand.

        Raises:
            Unsendable: the record has no request of this form.
            InvalidEvent: a header of the record is not text.
        """
        found = None if known is not None else self.usual(record)
        return found or self._at_length(record, known or identity(record))

    def usual(self, record: Record) -> Request | None:
        """Return the request for a record that leaves nothing to ask; None: for any other."""
        if not self._is_common:
            return None
        try:
            return self._quickly(record)
        except (Unclear, UnicodeDecodeError):
            return None  # the longer way says what it is

    def _at_length(self, record: Record, known: Identity) -> Request:
        headers: list[tuple[str, str]] = []
        found = self._attributes(record, known)
        content_type = found.pop("datacontenttype", None)
        body = record.value or b""
        if self._form.format == "cloudevents_structured":
            body, content_type = structured(record, found, content_type)
        else:
            if content_type is None and self._detects and is_json(body):
                content_type = "application/json"
            if self._form.format == "cloudevents_binary":
                headers += [(f"ce-{name}", encoded(value)) for name, value in found.items()]
            elif content_type is None:
                content_type = f"text/plain; charset={self._form.charset}"
            if self._transcodes:
                body = _in_charset(body, self._form.charset)
        if self._has_body and content_type is not None and not self._typed:
            headers.append(("Content-Type", printable(content_type)))
        headers += self._carried(record)
        if self._form.metadata is not None:
            headers += _place(record)
        id_, sent = webhook_id(known), lines(headers)
        if len(headers) > MOST_HEADERS or len(id_) + len(sent) > MOST_HEAD:
            raise _large(len(headers), len(id_) + len(sent))
        if self._has_body:
            return Request(id_, self.target, sent, body, known.id)
        return Request(id_, self._with_parameter(body), sent, b"", known.id)

    def _quickly(self, record: Record) -> Request:
        """
        Return the request for a record that leaves nothing to ask, in a third of the time.

        Raises:
            Unclear, UnicodeDecodeError: only the longer way can say, or why there is no request.
        """
        if not record.headers:
            raise Unclear
        names, values = zip(*record.headers, strict=True)
        found, body = self._patterns.of(names), record.value or b""
        block, id_ = self._blocks.of(found, values), values[found.id]
        if not id_:
            raise Unclear
        text = id_.decode()
        name = escaped(text)
        if found.time is None:
            sent = block.text % name
        elif (time := values[found.time]) is None:
            raise Unclear
        else:
            sent = block.text % (name, escaped(time.decode()))
        if found.content_type is None and self._detects and is_json(body):
            sent += _AS_JSON
        if found.has_trace:
            sent += lines(self._carried(record))
        webhook = name + block.end
        if "." in webhook:
            webhook = webhook.replace(".", "%2E")
        if len(webhook) + len(sent) > MOST_HEAD:
            raise Unclear
        # As the class's own constructor, which takes four times as long.
        return tuple.__new__(Request, (webhook, self.target, sent, body, text, True))

    def _block(self, found: Pattern, values: Values) -> Block:
        """
        Return the block for a record's values.

        Raises:
            Unclear, UnicodeDecodeError: there is none.
        """
        source = values[found.source]
        if not source:
            raise Unclear
        text = standing(found, values, sendable)
        if found.content_type is not None:
            given = values[found.content_type]
            if given is None:
                raise Unclear
            line = typed(given)  # one that is no text is refused, also where it is not sent
            text += "" if self._typed else line.replace("%", "%%")
        return Block(text, at_source(source))

    def allowed(self, headers: Sequence[tuple[str, str]]) -> Sequence[tuple[str, str]]:
        """Return the headers of a trace, without those that the subscription sets itself."""
        if not self._given:
            return headers
        return [pair for pair in headers if pair[0].lower() not in self._given]

    def _carried(self, record: Record) -> Sequence[tuple[str, str]]:
        return () if self._traced else self.allowed(_trace(record))

    def _attributes(self, record: Record, known: Identity) -> dict[str, str]:
        found = attributes(record, known)
        if self._traced:
            for name, value in _trace(record):
                found.setdefault(name, value)
        return found

    def _with_parameter(self, value: bytes) -> str:
        added = f"{quote(self._form.query_param_key, safe='')}={quote_from_bytes(value, safe='')}"
        return f"{self._path}?{self._query}&{added}" if self._query else f"{self._path}?{added}"


def _large(headers: int, size: int) -> Unsendable:
    """Return why a head is not sent: servers refuse it, and it would look like their trouble."""
    if headers > MOST_HEADERS:
        return Unsendable(
            f"its attributes make {headers} headers, and at most {MOST_HEADERS} are sent"
        )
    return Unsendable(
        f"its attributes make {size:,} bytes of headers, and at most {MOST_HEAD:,} are sent"
    )


def attributes(record: Record, known: Identity) -> dict[str, str]:
    """
    Return the CloudEvents attributes of a record; those missing from a foreign one are made up.
    """
    found: dict[str, str] = {"specversion": "1.0", "id": known.id}
    for name, value in record.headers:
        attribute = _attribute_in(name)
        if attribute is not None and value is not None:
            found[attribute] = _text(name, value)
    if "type" not in found or "source" not in found:
        event = envelope.decode(record)
        found.setdefault("type", event.type)
        found.setdefault("time", envelope.format_time(event.time))
    found["source"] = known.source
    return found


def _place(record: Record) -> Sequence[tuple[str, str]]:
    headers = [
        ("QOH-Topic", record.topic),
        ("QOH-Partition", str(record.partition)),
        ("QOH-Message-Number", str(record.offset)),
    ]
    if record.key is not None:
        headers.append(("QOH-Message-Key", printable(record.key.decode(errors="replace"))))
    return headers


def _trace(record: Record) -> Sequence[tuple[str, str]]:
    """Return the trace context of a record, if it is one: others must not keep a record back."""
    found = parent(record.headers)
    if found is None:
        return ()
    trace = next(value for name, value in record.headers if name == envelope.TRACEPARENT and value)
    headers = [(envelope.TRACEPARENT, printable(trace.decode("ascii", "replace")))]
    if found.state:
        headers.append((TRACESTATE, ",".join(f"{name}={value}" for name, value in found.state)))
    return headers


def _in_charset(value: bytes, charset: str) -> bytes:
    try:
        return value.decode().encode(charset)
    except (UnicodeError, LookupError) as error:
        msg = f"the value cannot be written in {charset}: {error}"
        raise Unsendable(msg) from error


def webhook_id(known: Identity) -> str:
    """
    Return the `webhook-id` of an event: `id@source`.

    A receiver ignores one that it has seen, and ids are unique for each source only. It is not a
    hash, so that operators find the id in a receiver's log. In the signed text, a dot would end
    it.
    """
    return encoded(known.name).replace(".", "%2E")


def _attribute_in(name: str) -> str | None:
    # A longer name is not an attribute, and must not fill the cache either.
    return _attribute(name) if len(name) <= _LONGEST_NAME else None


@lru_cache(maxsize=1024)
def _attribute(name: str) -> str | None:
    """Return the attribute in a record's header, if there is one."""
    if name == envelope.CONTENT_TYPE:
        return "datacontenttype"
    attribute = name.removeprefix(_PREFIX)
    # An event without an id has its position as its id; that is not among its headers.
    if attribute == name or attribute in _OURS or not _ATTRIBUTE.fullmatch(attribute):
        return None
    return attribute


def _text(name: str, value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError as error:
        msg = f"header {name} is not UTF-8 text"
        raise Unsendable(msg) from error
