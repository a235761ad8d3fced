"""The log of a process: text of others stays within its line."""

import json
import logging
import re
from collections.abc import Callable

import pytest

from dovecote.process.logs import LogFormat, LogLevel, configure, last_line
from dovecote.process.rarely import Sums
from outbox.errors import DovecoteError

FORGED = "2026-01-01 00:00:00,000 ERROR   dovecote: all is lost"
ODD = f"first\n{FORGED}\r\x1b[31mred\x1b[0m\x9b31m\x07\x00\u2028\u202e\x85end"
BEGINS = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} [A-Z]+ +[\w.]+: ")


def raising(error: Exception) -> Callable[[logging.Logger], None]:
    error.__context__ = KeyError(ODD)

    def log(to: logging.Logger) -> None:
        try:
            raise error
        except type(error):
            to.exception("the handler raised for %s", ODD)

    return log


class Hostile:
    """A value whose text is another failure."""

    def __str__(self) -> str:
        raise ValueError(ODD)


def noted() -> Exception:
    error = ValueError(ODD)
    error.add_note(f'  File "x"\n{FORGED}')
    return error


SAID: dict[str, Callable[[logging.Logger], None]] = {
    "a value": lambda log: log.info("key %s", ODD),
    "a message": lambda log: log.info(ODD),
    "details": lambda log: log.error("Spark says", extra={"details": f"{ODD}\n{FORGED}"}),
    "an exception": raising(ValueError(ODD)),
    "a huge exception": raising(ValueError(ODD * 100_000)),
    "a note": raising(noted()),
    "a group": raising(ExceptionGroup(ODD, [ValueError(ODD), noted()])),
    "an error in XML": raising(SyntaxError(ODD, (ODD, 1, 1, ODD))),
    "a value without a text": lambda log: log.info("key %s", Hostile()),
    "an exception without a text": raising(ValueError(Hostile())),
    "too few values": lambda log: log.info("%s %s", *[ODD]),
    "many lines": lambda log: log.info("a", extra={"details": f"{ODD}\n" * 100_000}),
    "a surrogate": lambda log: log.info("key %s", "\udcff\ud800"),
}


@pytest.mark.parametrize("say", SAID.values(), ids=SAID)
def test_text_of_others_begins_no_line_and_steers_no_terminal(
    say: Callable[[logging.Logger], None], capsys: pytest.CaptureFixture[str]
) -> None:
    configure(LogFormat.TEXT)
    say(logging.getLogger("dovecote.consumer"))
    first, *more = capsys.readouterr().err.removesuffix("\n").split("\n")
    assert BEGINS.match(first)
    assert "all is lost" not in first.split("\\n")[0]
    assert all(line.startswith("    ") for line in more)
    assert all(line.isprintable() and len(line) < 9_000 for line in (first, *more))
    assert len(more) < 150


@pytest.mark.parametrize("say", SAID.values(), ids=SAID)
def test_a_line_of_json_is_one_line_too(
    say: Callable[[logging.Logger], None], capsys: pytest.CaptureFixture[str]
) -> None:
    configure(LogFormat.JSON)
    say(logging.getLogger("dovecote.consumer"))
    (line,) = capsys.readouterr().err.splitlines()
    assert line.isprintable()
    assert len(line) < 500_000
    fields = json.loads(line)
    assert fields["message"].isprintable()
    assert "\x1b" not in fields.get("exception", "")


def test_each_line_of_one_of_several_processes_has_its_number(
    capsys: pytest.CaptureFixture[str],
) -> None:
    configure(LogFormat.TEXT, process=3)
    logging.getLogger("dovecote.consumer").info("hello")
    configure(LogFormat.JSON, process=3)
    logging.getLogger("dovecote.consumer").info("hello")
    text, line = capsys.readouterr().err.splitlines()
    assert text.endswith("INFO    dovecote.consumer[3]: hello")
    fields = json.loads(line)
    assert (fields["logger"], fields["process"]) == ("dovecote.consumer", 3)


def test_a_long_message_is_cut_and_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    configure(LogFormat.TEXT).warning("failed: %s", "x" * 20_000_000)
    line = capsys.readouterr().err
    assert len(line) < 5_000
    assert line.endswith("x… (20000008 characters in all)\n")


def test_an_applications_own_loggers_are_shown_and_libraries_from_warning_on(
    capsys: pytest.CaptureFixture[str],
) -> None:
    logging.getLogger("urllib3").setLevel(logging.INFO)  # the application's choice
    configure(LogFormat.TEXT)
    for name in ("myapp", "myapp.orders", "py4j.clientserver", "sqlalchemy.engine", "urllib3"):
        logging.getLogger(name).info("hello")
        logging.getLogger(name).debug("not this")
    told = [line.split()[3] for line in capsys.readouterr().err.splitlines()]
    assert told == ["myapp:", "myapp.orders:", "urllib3:"]


def test_with_debug_an_application_sees_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    configure(LogFormat.TEXT, LogLevel.DEBUG)
    logging.getLogger("myapp").debug("hello")
    logging.getLogger("asyncio").debug("not this")
    assert capsys.readouterr().err.endswith("DEBUG   myapp: hello\n")


def test_the_last_line_of_a_command_is_one_line_of_its_own() -> None:
    told = last_line(DovecoteError(f"bad settings:\n  speed: {ODD}\n{FORGED}"))
    assert told.endswith("\n")
    first, *more = told.removesuffix("\n").split("\n")
    assert first == "dovecote: bad settings:"
    assert all(line.startswith("  ") and line.isprintable() for line in more)
    assert len(last_line(DovecoteError("x" * 20_000_000))) < 5_000


def test_sums_are_told_once_in_a_while_and_at_the_end(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1.0
    monkeypatch.setattr("dovecote.process.rarely.time.monotonic", lambda: now)
    caplog.set_level("INFO", "test.sums")
    sums = Sums(logging.getLogger("test.sums"), "skipped", every=10.0)
    for number in range(20_000):
        sums.add("duplicate", 1, lambda number=number: f"t/0/{number}")  # type: ignore[misc]  # it is an int
        sums.tell()
    assert caplog.messages == []
    now = 11.0
    sums.add("filtered", 3, lambda: "t/0/9")
    sums.tell()
    sums.tell(at_once=True)
    sums.add("filtered", 1, lambda: "t/0/10")
    sums.tell(at_once=True)
    assert caplog.messages == [
        "20003 skipped: 20000 duplicate, 3 filtered; the first: t/0/0",
        "1 skipped: 1 filtered; the first: t/0/10",
    ]
