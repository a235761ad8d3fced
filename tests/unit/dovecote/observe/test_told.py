"""Commands can be pasted, and an error names the place to mend."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from dovecote.cli.consume import status
from dovecote.cli.main import app
from dovecote.observe.dead.pushed import PushPart
from dovecote.observe.dead.shapes import Selection
from dovecote.observe.rules.counted import counted
from dovecote.observe.rules.group import GroupMember, GroupStatus
from dovecote.observe.sources import PushSource
from outbox.errors import DovecoteError

FOUND = GroupStatus(
    group="g",
    kafka_state="STABLE",
    members=[GroupMember(id="m", client="c", host="h", partitions=1)],
    partitions=[],
    retries=[],
    dead=1,
    dead_whole=True,
)


@pytest.mark.parametrize(
    ("text", "command"),
    [
        ('topics = ["a"]\ngroup = "g"\n', "dovecote consume dead list --config {}"),
        (
            '[sources.consumer.shipping]\ntopics = ["a"]\ngroup = "g"\n',
            "dovecote dead list --part consumer/shipping --config {}",
        ),
    ],
)
def test_the_command_that_lists_the_letters_of_a_group_reads_the_same_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, command: str
) -> None:
    monkeypatch.setattr(status, "look", lambda _: FOUND)
    file = tmp_path / "file.toml"
    file.write_text(text + '[kafka]\n"bootstrap.servers" = "b"\n')

    shown = CliRunner().invoke(app, ["consume", "status", "--config", str(file)]).output

    assert f"1 letter; see `{command.format(file)}`" in shown
    assert shown.splitlines()[1].endswith("  1 partition")


def test_a_push_that_is_away_is_mended_in_the_file_that_names_it() -> None:
    part = PushPart("push/main", PushSource(url="http://127.0.0.1:1"))

    with pytest.raises(DovecoteError) as away:
        list(part.all(Selection()))

    assert str(away.value).endswith(
        "is `dovecote push serve` running there? Otherwise mend `url` in [sources.push.main]"
    )


def test_one_is_one_and_others_are_many() -> None:
    found = [counted(number, "letter") for number in (0, 1, 1_000)]
    assert found == ["0 letters", "1 letter", "1,000 letters"]
