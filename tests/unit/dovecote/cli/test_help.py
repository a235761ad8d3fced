"""The help of every command: whole at 80 columns, in words of ours, the same words everywhere."""

import re
from collections import defaultdict
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
import typer.main
from typer.core import TyperGroup, TyperOption
from typer.testing import CliRunner

from dovecote.cli.main import app

# An option of the same name that means something else there.
MEANINGS: dict[tuple[str, ...], str] = {
    ("consume", "dead", "list", "--topic"): "the dead-letter topic",
    ("consume", "dead", "show", "--topic"): "the dead-letter topic",
    ("consume", "dead", "requeue", "--topic"): "the dead-letter topic",
    ("consume", "dead", "drop", "--topic"): "the dead-letter topic",
    ("push", "subscribe", "--topic"): "a topic to read",
    **{
        (*words, "--id"): "the id of an event"
        for words in (("topic", "tail"), *(("dead", name) for name in ("list", "requeue", "drop")))
    },
    ("push", "attempts", "--since"): "the time of a request",
    ("push", "update", "--set"): "a field of a subscription",
    ("push", "update", "--version"): "the version of a subscription",
    ("topic", "tail", "--from"): "where to begin",
    **{
        ("contracts", name, "--file"): "the committed file"
        for name in ("export", "check", "asyncapi")
    },
    ("audit", "--since"): "when events were written",
    ("init", "outbox", "--since"): "a version",
    ("find", "--since"): "the time of events",
    ("find", "--until"): "the time of events",
    ("find", "--topic"): "the topic of events",
    ("init", "inbox", "--since"): "a version",
    ("init", "push", "--since"): "a version",
}
LOGGING = (
    ("consume", "run"),
    ("push", "serve"),
    ("audit",),
    ("console",),
    *(("relay", name) for name in ("run", "reshard", "reconcile")),
    *(
        ("spark", name)
        for name in ("dedup", "pairing", "sessions", "delay", "aggregate", "together", "state")
    ),
)


class Found(NamedTuple):
    """A command, and the words that name it."""

    words: tuple[str, ...]
    command: Any

    def options(self) -> list[TyperOption]:
        return [each for each in self.command.params if isinstance(each, TyperOption)]


def walk(command: Any, words: tuple[str, ...] = ()) -> Iterator[Found]:
    yield Found(words, command)
    if isinstance(command, TyperGroup):
        for name in command.list_commands(None):  # type: ignore[arg-type]  # ours need no context
            yield from walk(command.get_command(None, name), (*words, name))  # type: ignore[arg-type]  # as above


EVERY = list(walk(typer.main.get_command(app)))
NAMES = [" ".join(found.words) or "dovecote" for found in EVERY]


def shown(words: tuple[str, ...], option: str) -> str:
    result = CliRunner().invoke(
        app, [*words, option], prog_name="dovecote", env={"COLUMNS": "80", "TERMINAL_WIDTH": ""}
    )
    assert result.exit_code == 0, result
    return result.output


@pytest.mark.parametrize("found", EVERY, ids=NAMES)
def test_help_is_whole_at_80_columns_and_in_words_of_ours(found: Found) -> None:
    text = shown(found.words, "--help")
    assert text == shown(found.words, "-h")
    assert max(map(len, text.splitlines())) <= 80
    # Three dots end a text that was cut; in the line of usage they mean that words may follow.
    assert "..." not in text.partition("\n")[2]
    assert "\N{HORIZONTAL ELLIPSIS}" not in text
    assert not re.search(r"<\w[\w\[\]| ]*>|\b(INTEGER|BOOLEAN|FLOAT|RANGE)\b|x[<>]=", text)
    # Neither is in a wheel.
    assert "docs/" not in text
    assert "./dovecote" not in text


@pytest.mark.parametrize("found", EVERY, ids=NAMES)
def test_every_text_is_a_sentence(found: Found) -> None:
    summary = found.command.help.partition("\n\n")[0]
    # The list of a group has room for so much; the first line of all is in no list.
    assert len(summary) <= 60 or not found.words
    texts = [summary, *(each.help for each in found.command.params)]
    for text in texts:
        assert re.fullmatch(r"[A-Z].*\.", text, flags=re.DOTALL), text


@pytest.mark.parametrize("found", EVERY, ids=NAMES)
def test_every_value_has_a_name_of_ours(found: Found) -> None:
    for each in found.command.params:
        if not getattr(each, "is_flag", False):
            assert re.fullmatch(r"[A-Z:]+|[a-z]+(\|[a-z]+)*", each.metavar or ""), each.name


def test_an_option_has_the_same_words_everywhere() -> None:
    wordings = defaultdict(set)
    for found in EVERY:
        for option in found.options():
            meaning = MEANINGS.get((*found.words, option.opts[0]), "")
            wordings[option.opts[0], meaning].add((option.help, *option.opts, option.metavar))
    assert {key: words for key, words in wordings.items() if len(words) > 1} == {}
    assert {key[-1] for key in MEANINGS} <= {name for name, _ in wordings}


def test_every_command_that_logs_takes_a_format_and_a_level() -> None:
    for wanted in ("--log-format", "--log-level"):
        assert {
            found.words for found in EVERY for option in found.options() if wanted in option.opts
        } == {*LOGGING}


@pytest.mark.parametrize(
    ("words", "suggested"),
    [
        ("status", "relay status`, `dovecote consume status` or `dovecote spark status"),
        ("doctor", "relay doctor"),
        ("parked list", "relay parked"),
        ("reshard", "relay reshard"),
        ("reconcile --accept-restored", "relay reconcile"),
        ("consume -c consume.toml", "consume run"),
        ("push --config push.toml", "push serve"),
        ("relay --check", "relay run"),
        ("relay --log-format=json", "relay run`, `dovecote relay reshard` or `dovecote relay rec"),
        ("init --inbox", "init inbox"),
        ("init --push", "init push"),
        ("init --print-sql", "init outbox`, `dovecote init inbox` or `dovecote init push"),
        ("relay statsu", "relay status"),
        ("pusj", "push"),
        ("doctr", "relay doctor"),
        ("spark dead", "dead`, `dovecote consume dead` or `dovecote push dead"),
        ("push run", "push serve"),
        ("pair", "spark pairing"),
        ("relay pair", "spark pairing"),
        ("version", "--version"),
        ("relay version", "--version"),
        ("help", "--help"),
        ("relay help", "relay --help"),
    ],
)
def test_old_and_mistyped_commands_are_answered_with_those_that_may_be_meant(
    words: str, suggested: str
) -> None:
    result = CliRunner().invoke(app, words.split())
    assert result.exit_code == 2
    assert f". Did you mean `dovecote {suggested}" in result.stderr
    assert result.stderr.endswith("`?\n")


@pytest.mark.parametrize(
    ("words", "command"),
    [
        ("--log-level debug relay run", "relay run --log-level"),
        ("--log-level=debug relay run", "relay run --log-level"),
        ("relay --log-level debug run -c relay.toml", "relay run --log-level"),
        ("--json relay status", "relay status --json"),
    ],
)
def test_an_option_before_its_command_is_said_to_belong_after_it(words: str, command: str) -> None:
    result = CliRunner().invoke(app, words.split())
    assert result.exit_code == 2
    option = command.rpartition(" ")[2]
    said = f"No such option: {option}. It belongs after the command: `dovecote {command}`.\n"
    assert result.stderr.endswith(said)


def test_a_level_may_be_in_capitals() -> None:
    words = ["relay", "run", "--log-level", "DEBUG", "--config", "nowhere.toml"]
    result = CliRunner().invoke(app, words)
    assert "nowhere.toml" in str(result.exception)


@pytest.mark.parametrize(
    "words", [["xyzzy"], ["--xyzzy"], ["relay", "--xyzzy"], ["relay", "\x1b"]]
)
def test_nothing_is_suggested_where_nothing_is_alike(words: list[str]) -> None:
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 2
    assert "Did you mean" not in result.stderr
    assert "\x1b" not in result.stderr
