"""The rights of a token, and the names and endpoints that its subscriptions may use."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args
from urllib.parse import SplitResult, urlsplit

from pydantic import SecretStr

from dovecote.push.rules.subscription.fields import reference
from dovecote.push.rules.subscription.subscription import Subscription

Right: TypeAlias = Literal["read", "write", "operate"]
"""Look; make, replace and delete; pause, resume, replay, resolve dead letters, and audit."""

RIGHTS: tuple[Right, ...] = get_args(Right)
EVERY = ("*",)

_PORTS = {"http": 80, "https": 443}
# With these a path can leave the folder that it seems to be in: a server may decode it twice, cut
# off parameters (`..;x/`) and control characters, or take more bytes for a dot than it has.
_CLIMBS = re.compile(
    r"(^|/)\.{1,2}(;|/|$)|\\|%(2e|2f|5c|25|3b|u|[01][0-9a-f]|c0|c1|e0%80|f0%80)", re.IGNORECASE
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """
    Limits what the holder of one token may do.

    An entry of a list is a name, or the beginning of names and `*`; an empty list allows nothing.
    """

    name: str
    """The name of the token."""
    owner: str
    """Subscriptions that it makes belong to this owner; other tokens may have the same."""
    rights: frozenset[Right]
    sees_all: bool
    """Whether it may use its rights on the subscriptions of other owners."""
    ids: Sequence[str]
    brokers: Sequence[str]
    topics: Sequence[str]
    groups: Sequence[str]
    dead_letter_topics: Sequence[str]
    secrets: Sequence[str]
    endpoints: Sequence[str]
    most: int | None = None
    """Most subscriptions that its owner may have when it makes one; None: any number."""

    def sees(self, owner: str) -> bool:
        """Return whether subscriptions of `owner` exist for it."""
        return self.sees_all or owner == self.owner != ""

    def may_name(self, id_: str) -> bool:
        """Return whether a new subscription may have this id."""
        return covers(self.ids, id_)

    def refusals(self, wanted: Subscription) -> list[tuple[str, str]]:
        """Return what `wanted` uses beyond the scope, as pairs of a field's path and words."""
        return [(path, self._words(what, setting)) for path, what, setting in self._beyond(wanted)]

    def unnamed(self, id_: str) -> tuple[str, str]:
        """Return the refusal of an id, whether or not somebody else has it."""
        return "id", self._words(f"the id {id_!r}", "ids")

    def too_many(self) -> tuple[str, str]:
        """Return the refusal of one subscription more than its owner may have."""
        setting = self._setting("max_subscriptions")
        return "", f"token {self.name!r} may have no more than {self.most}: {setting} allows more"

    def lacks(self, right: Right) -> str:
        """Return why it may not do what needs `right`; empty: it may."""
        if right in self.rights:
            return ""
        return f"token {self.name!r} has no right to {right}: {self._setting('rights')} gives it"

    def _beyond(self, wanted: Subscription) -> Iterator[tuple[str, str, str]]:
        if not covers(self.brokers, wanted.broker):
            yield "broker", f"the broker {wanted.broker!r}", "brokers"
        for path, name in _topics(wanted):
            if not covers(self.topics, name):
                yield path, f"the topic {name!r}", "topics"
        if wanted.pattern is not None and not covers_all_of(self.topics, wanted.pattern):
            yield "pattern", f"all topics of the pattern {wanted.pattern!r}", "topics"
        if not covers((wanted.own_group, *self.groups), wanted.group_id):
            yield "group", f"the consumer group {wanted.group_id!r}", "groups"
        dead = wanted.dead_letters
        if not covers((wanted.own_dead_letters, *self.dead_letter_topics), dead):
            yield "dead_letter_topic", f"the topic {dead!r}", "dead_letter_topics"
        for path, name in _references(wanted):
            if not covers(self.secrets, name):
                yield path, f"the secret {name!r}", "secrets"
        if not reaches(self.endpoints, wanted.endpoint.url):
            yield "endpoint.url", "this URL", "endpoints"

    def _words(self, what: str, setting: str) -> str:
        return f"token {self.name!r} may not use {what}: {self._setting(setting)} allows it"

    def _setting(self, name: str) -> str:
        return f"api.tokens.{self.name}.{name}"


def everything(name: str, owner: str | None = None) -> Scope:
    """Return the scope of an operator, who may do everything."""
    return Scope(
        name=name,
        owner=name if owner is None else owner,
        rights=frozenset(RIGHTS),
        sees_all=True,
        ids=EVERY,
        brokers=EVERY,
        topics=EVERY,
        groups=EVERY,
        dead_letter_topics=EVERY,
        secrets=EVERY,
        endpoints=EVERY,
    )


NOBODY = Scope(
    name="",
    owner="",
    rights=frozenset(),
    sees_all=False,
    ids=(),
    brokers=(),
    topics=(),
    groups=(),
    dead_letter_topics=(),
    secrets=(),
    endpoints=(),
)
"""The scope of a caller that is not known."""


def covers(entries: Iterable[str], name: str) -> bool:
    """Return whether one of the entries is `name`, or a beginning of it and `*`."""
    return any(
        name.startswith(each[:-1]) if each.endswith("*") else name == each for each in entries
    )


def covers_all_of(entries: Iterable[str], pattern: str) -> bool:
    """
    Return whether entries surely cover every name that a regular expression matches.

    It looks at the text that each of these names begins with. So it may refuse an expression that
    would do, and never takes one that would not.
    """
    literal, is_whole = beginning(pattern)
    return any(
        literal.startswith(each[:-1]) if each.endswith("*") else is_whole and literal == each
        for each in entries
    )


def beginning(pattern: str) -> tuple[str, bool]:
    """Return what every match of `pattern` begins with, and whether that is the whole match."""
    if _may_branch(pattern):
        return "", False
    found = ""
    rest = pattern.removeprefix("^")
    while part := re.match(r"[A-Za-z0-9_-]|\\[.-]", rest):
        found, rest = found + part[0][-1], rest[part.end() :]
    if rest[:1] in {"*", "?", "{", "+"}:
        return found[:-1], False  # the last character may be missing
    return found, rest == ""


def _may_branch(pattern: str) -> bool:
    """Return whether the expression may have an alternative that is outside of brackets."""
    if "|" not in pattern:
        return False
    if "[" in pattern or "(?" in pattern or "\\" in pattern.replace(r"\.", ""):
        return True  # here a bracket or a bar may be a letter, or the other way round
    depth = 0
    for each in pattern:
        depth += (each == "(") - (each == ")")
        if depth <= 0 and each == "|":
            return True
    return False


def reaches(entries: Iterable[str], url: str) -> bool:
    """
    Return whether one of the entries allows requests to `url`.

    An entry is `*`, or a URL: scheme, host and port are the same, and the path is the entry's or
    below it. A host that begins with `*.` means all hosts below that domain.
    """
    wanted = urlsplit(url)
    return any(each == "*" or _is_within(wanted, urlsplit(each)) for each in entries)


def _is_within(wanted: SplitResult, entry: SplitResult) -> bool:
    if (wanted.scheme, _port(wanted)) != (entry.scheme, _port(entry)):
        return False
    host, allowed = wanted.hostname or "", entry.hostname or ""
    if not (host.endswith(allowed[1:]) if allowed.startswith("*.") else host == allowed):
        return False
    folder = entry.path.rstrip("/")
    if not folder:
        return True
    is_below = wanted.path == entry.path or wanted.path.startswith(f"{folder}/")
    return is_below and not _CLIMBS.search(wanted.path)


def _port(url: SplitResult) -> int | None:
    return _PORTS.get(url.scheme) if url.port is None else url.port


def wrong_entry(entry: str) -> str:
    """Return why an entry is none; empty: it is one."""
    if not entry or "*" in entry[:-1]:
        return "is neither a name nor the beginning of names and a *"
    return ""


def wrong_url(entry: str) -> str:
    """Return why an entry is no place for endpoints; empty: it is one."""
    why = "is not * or a URL such as https://hooks.example/shop: no user, query or fragment"
    if entry == "*":
        return ""
    try:
        parts = urlsplit(entry)
        host, _ = parts.hostname or "", parts.port
    except ValueError:
        return why
    is_plain = "@" not in parts.netloc and not parts.query and not parts.fragment
    if parts.scheme not in _PORTS or not host or not is_plain:
        return why
    if "*" in host.removeprefix("*.") or "*" in parts.path or _CLIMBS.search(parts.path):
        return "has a * elsewhere than at the beginning of the host, or a path with . or .. in it"
    return ""


def overlap(one: Iterable[str], other: Iterable[str]) -> str | None:
    """Return an entry of `one` that covers a name which an entry of `other` covers, too."""
    others = list(other)
    for each in one:
        start = each.removesuffix("*")
        for second in others:
            begins = second.removesuffix("*")
            if (
                (each.endswith("*") and begins.startswith(start))
                or (second.endswith("*") and start.startswith(begins))
                or each == second
            ):
                return each
    return None


def _topics(wanted: Subscription) -> Iterator[tuple[str, str]]:
    for number, name in enumerate(wanted.topics):
        yield f"topics.{number}", name
    for number, each in enumerate(wanted.partitions):
        yield f"partitions.{number}.topic", each.topic


def _references(wanted: Subscription) -> Iterator[tuple[str, str]]:
    for header, value in wanted.endpoint.headers.items():
        yield from _reference(f"endpoint.headers.{header}", value)
    for number, value in enumerate(wanted.signing.secrets if wanted.signing else ()):
        yield from _reference(f"signing.secrets.{number}", value)


def _reference(path: str, value: SecretStr) -> Iterator[tuple[str, str]]:
    if (found := reference(value)) is not None:
        yield path, ":".join(found)
