"""
Read an endpoint's answer, byte by byte, as the world writes them.

The status line decides. Anything odd after it ends the connection, and changes no decision. A
connection has one request at a time, so none of it can become the answer to another one.
"""

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Literal, NamedTuple, TypeAlias

KEPT_BYTES = 1024
HEADER_BYTES = 64_000
# Overhead of a chunk that is accepted. A chunk of one byte needs six; more than this is made on
# purpose.
_WRAPPED = 8
_EARLY = 200
_SWITCHING = 101
_NO_CONTENT = 204
_WITHOUT_BODY = frozenset({_NO_CONTENT, 304})
_REMEMBERED = 200
_WHOLE_BYTES = 2_000

_BEGINNING = b"http/"
_STATUS = re.compile(rb"HTTP/(\d(?:\.\d)?)[ \t]+([1-9]\d\d)(?!\d).*", re.IGNORECASE | re.DOTALL)
_CLEAN_STATUS = re.compile(rb"HTTP/1\.1 ([2-9]\d\d)(?: [\t\x20-\x7e\x80-\xff]*)?")
_CLEAN = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+):([\t\x20-\x7e\x80-\xff]*)")
_LENGTH = re.compile(r"\d{1,18}", re.ASCII)
_CHUNK = re.compile(rb"[ \t]*([0-9A-Fa-f]+)[ \t]*(;.*)?\r?", re.DOTALL)
_CLEAN_CHUNK = re.compile(rb"[0-9A-Fa-f]+(;[\t\x20-\x7e\x80-\xff]*)?\r")

_Step: TypeAlias = Literal["status", "fields", "length", "size", "chunk", "end", "trailer", "open"]
_LINES = frozenset({"status", "fields", "size", "end", "trailer"})
_HEAD = frozenset({"status", "fields"})


class Answer(NamedTuple):
    """An endpoint's answer."""

    status: int
    headers: Mapping[str, str] = MappingProxyType({})
    """By name in lower case; of a repeated name, the first."""
    excerpt: bytes = b""
    """The beginning of the body."""
    cut: bool = False
    """The answer was not read to its end: it is too long, broken, or did not come."""


class AnswerReader:
    """
    Reads the answer to one request, in bounded memory.

    `most` is the number of bytes of a body that are read. `bodyless` says that the method is HEAD.
    """

    __slots__ = (
        "_bodyless",
        "_excerpt",
        "_fields",
        "_interim",
        "_left",
        "_lines",
        "_most",
        "_rest",
        "_size",
        "_status",
        "_step",
        "_version",
        "began",
        "cut",
        "done",
        "failure",
        "reusable",
        "strayed",
    )

    def __init__(self, *, most: int, bodyless: bool) -> None:
        self._most, self._bodyless = most, bodyless
        self._step: _Step = "status"
        self._rest = bytearray()
        """A line that has not ended."""
        self._lines = self._left = self._size = 0
        self._status, self._version, self._interim = 0, b"", False
        self._fields: list[list[str]] = []
        self._excerpt = b""
        self.began = False
        """Whether a status line came, if only one of an interim answer."""
        self.done = False
        self.cut = False
        self.failure = ""
        """Why there is no answer, once `done`; empty: there is one."""
        self.reusable = True
        """Whether the connection can take another request, once `done`."""
        self.strayed = False
        """Whether bytes came that belong to no answer."""

    @property
    def answer(self) -> Answer:
        """The answer, once `done` without a `failure`."""
        headers = dict(reversed(self._named()))
        return Answer(self._status, MappingProxyType(headers), self._excerpt, self.cut)

    def feed(self, data: bytes) -> bool:
        """Read what came; return whether that is all."""
        if self._rest:
            self._rest += data
            if b"\n" in data:
                data = bytes(self._rest)
                self._rest.clear()
            else:
                data = b""
        at = 0
        while not self.done and at < len(data):
            if self._step in _LINES:
                end = data.find(b"\n", at)
                if end < 0:
                    self._rest += data[at:]
                    break
                self._lines += end + 1 - at
                self._take_line(data[at:end])
                at = end + 1
                self._bound()
            else:
                at = self._take_body(data, at)
        if not self.done:
            self._bound()
            if self._step == "status" and not self._may_begin():
                self._refuse()
        elif data[at:].strip(b"\r\n"):
            self.strayed, self.reusable = True, False
        return self.done

    def end(self, why: str, *, cleanly: bool = False) -> None:
        """
        Take that nothing more comes; `cleanly`: the server has closed the connection.

        If a status line came, there is an answer. Otherwise `why` says why there is none.
        """
        if self._status:
            self.cut = self.cut or not (cleanly and self._step == "open")
            self._finish(reusable=False)
        else:
            self._fail(why)

    def _bound(self) -> None:
        """Stop at lines that never end, or never end coming."""
        came = self._lines + len(self._rest)
        if self.done:
            return
        if self._step in _HEAD:
            if came > HEADER_BYTES:
                self.end(f"the headers of its answer are longer than {HEADER_BYTES} bytes")
        elif came > HEADER_BYTES + _WRAPPED * self._most:
            self._break()

    def _may_begin(self) -> bool:
        began = bytes(self._rest[: len(_BEGINNING) + 2]).lstrip(b"\r\n").lower()
        return _BEGINNING.startswith(began[: len(_BEGINNING)])

    def _take_line(self, line: bytes) -> None:
        match self._step:
            case "status":
                self._take_status(line)
            case "fields":
                self._take_field(line)
            case "size":
                self._take_size(line)
            case "end" if line in {b"", b"\r"}:
                self.reusable = self.reusable and bool(line)
                self._step = "size"
            case "end":
                self._break()
            case _ if line in {b"", b"\r"}:  # the end of the trailers
                self._finish(reusable=bool(line))

    def _take_status(self, line: bytes) -> None:
        if not line.strip(b"\r"):
            return  # some servers end a body with one line end too many
        found = _STATUS.fullmatch(line)
        if found is None:
            self._refuse()
            return
        self.began = True
        self.reusable = self.reusable and line.endswith(b"\r")
        status = int(found[2])
        if status == _SWITCHING:
            self._fail("it answered 101, without a request to switch protocols")
            return
        self._interim = status < _EARLY
        if not self._interim:
            self._status, self._version = status, found[1]
        self._step = "fields"

    def _take_field(self, line: bytes) -> None:
        if not line.strip(b"\r"):
            self.reusable = self.reusable and line == b"\r"
            if self._interim:
                self._step = "status"
            else:
                self._take_fields()
            return
        if self._interim:
            return
        if line[0] in b" \t":
            self.reusable = False
            if self._fields:
                self._fields[-1].append(line.decode("latin-1").strip())
            return
        name, value, is_clean = _field(line.removesuffix(b"\r"))
        self.reusable = self.reusable and is_clean and line.endswith(b"\r")
        if name:
            self._fields.append([name, value])

    def _take_fields(self) -> None:
        length, reusable = ending(
            self._status, self._version, self._named(), bodyless=self._bodyless
        )
        self.reusable = self.reusable and reusable
        match length:
            case 0:
                self._finish()
            case int():
                self._left, self._step = length, "length"
            case "chunked":
                self._step = "size"
            case "open":
                self._step = "open"
            case _:
                self._break()

    def _named(self) -> list[tuple[str, str]]:
        return [(name, " ".join(folds)) for name, *folds in self._fields]

    def _take_size(self, line: bytes) -> None:
        found = _CHUNK.fullmatch(line)
        if found is None:
            self._break()
            return
        if not _CLEAN_CHUNK.fullmatch(line):
            self.reusable = False
        self._left = int(found[1], 16)
        self._step = "chunk" if self._left else "trailer"

    def _take_body(self, data: bytes, at: int) -> int:
        """Take bytes of the body from a place on; return the place after them."""
        end = len(data) if self._step == "open" else min(len(data), at + self._left)
        if len(self._excerpt) < KEPT_BYTES:
            self._excerpt += data[at : min(end, at + KEPT_BYTES - len(self._excerpt))]
        self._size += end - at
        if self._size > self._most:
            self._break()
        elif self._step != "open":
            self._left -= end - at
            if not self._left:
                if self._step == "length":
                    self._finish()
                else:
                    self._step = "end"
        return end

    def _break(self) -> None:
        """Stop in the middle: it is too long, or nobody knows where it ends."""
        self.cut = True
        self._finish(reusable=False)

    def _finish(self, *, reusable: bool = True) -> None:
        self.done = True
        self.reusable = self.reusable and reusable

    def _refuse(self) -> None:
        self.strayed = True
        self._fail("the answer is not HTTP/1.1")

    def _fail(self, why: str) -> None:
        self.failure = why
        self._finish(reusable=False)


Length: TypeAlias = int | Literal["chunked", "open", "unknown"]
"""How long a body is; `open`: until the connection ends."""


def ending(
    status: int, version: bytes, fields: Iterable[tuple[str, str]], *, bodyless: bool
) -> tuple[Length, bool]:
    """Return the length of a body, and whether the connection can be used after it."""
    lengths: list[str] = []
    codings: list[str] = []
    options: list[str] = []
    for name, value in fields:
        if name == "content-length":
            lengths += _parts(value)
        elif name == "transfer-encoding":
            codings += [each for each in _parts(value) if each != "identity"]
        elif name == "connection":
            options += _parts(value)
    stays = version == b"1.1" or (version == b"1.0" and "keep-alive" in options)
    stays = stays and "close" not in options
    if bodyless or status in _WITHOUT_BODY:
        # A body that a 204 announces may come all the same.
        announced = status == _NO_CONTENT and (codings or {*lengths} - {"0"})
        return 0, stays and not announced
    if codings:
        if codings[-1] == "chunked":
            return "chunked", stays and codings == ["chunked"] and not lengths
        return "open", False
    if not lengths:
        return "open", False
    if len({*lengths}) > 1 or not _LENGTH.fullmatch(lengths[0]):
        return "unknown", False
    return int(lengths[0]), stays and len(lengths) == 1


def whole(data: bytes, *, most: int, bodyless: bool) -> Answer | None:
    """
    Return an answer that came in one piece and leaves nothing to ask.

    None: only an `AnswerReader` can say. Almost all answers are like this, and are read in a
    quarter of the time.
    """
    end = data.find(b"\r\n\r\n", 0, _WHOLE_BYTES)
    if end < 0 or (head := _head(data[:end], bodyless)) is None:
        return None
    status, headers, length = head
    end += 4
    if len(data) - end != length or length > most:
        return None
    return Answer(status, headers, data[end : end + KEPT_BYTES])


@lru_cache(maxsize=512)
def _head(head: bytes, bodyless: bool) -> tuple[int, Mapping[str, str], int] | None:  # noqa: FBT001  # for the cache
    """Return the status, headers and length of an answer as it should be; None: of any other."""
    first, *lines = head.split(b"\r\n")
    found = _CLEAN_STATUS.fullmatch(first)
    fields = [_field(line) for line in lines]
    if found is None or not all(is_clean for _, _, is_clean in fields):
        return None
    status, named = int(found[1]), [(name, value) for name, value, _ in fields]
    length, reusable = ending(status, b"1.1", named, bodyless=bodyless)
    if not reusable or not isinstance(length, int):
        return None
    return status, MappingProxyType(dict(reversed(named))), length


def _parts(value: str) -> list[str]:
    return [each.strip() for each in value.lower().split(",")]


def _field(line: bytes) -> tuple[str, str, bool]:
    """Return a header's name in lower case, its value, and whether it is as it should be."""
    return _known(line) if len(line) <= _REMEMBERED else _known.__wrapped__(line)


@lru_cache(maxsize=1024)
def _known(line: bytes) -> tuple[str, str, bool]:
    text = line.decode("latin-1")
    if (found := _CLEAN.fullmatch(text)) is not None:
        return found[1].lower(), found[2].strip(), True
    name, _, value = text.partition(":")
    return name.strip().lower(), value.strip(), False
