"""`dovecote find` says what a deduplicating Spark job made of each record."""

import json
import time
from dataclasses import dataclass, field
from pathlib import Path

from typer.testing import CliRunner

from dovecote.cli.main import app
from dovecote.observe.find import Life, Query, find
from dovecote.observe.sources import WatchSettings, read
from outbox.envelope import ID, SOURCE, Pair
from outbox.event import new_id
from tests.spark.fix_spark import Job, MakeJob
from tests.support.waiting import until

HANDLER = "tests.unit.spark_jobs.handlers:by_value"
PART = "spark/dedup"


@dataclass
class Told:
    """Records of a job by names, and what is told of them."""

    job: Job
    ids: dict[str, str] = field(default_factory=dict)

    def send(self, *named: tuple[str, str, dict[str, object]]) -> None:
        """Send records: name, key and value. One name is one event."""
        records: list[tuple[str | None, bytes | None, list[Pair]]] = []
        for name, key, value in named:
            id_ = self.ids.setdefault(name, new_id())
            headers: list[Pair] = [(ID, id_.encode()), (SOURCE, b"/tests")]
            records.append((key, json.dumps(value).encode(), headers))
        self.job.send(*records)

    @property
    def file(self) -> Path:
        file = self.job.folder / "watch.toml"
        config = f"[sources.spark.dedup]\nconfig = '{self.job.file()}'\n"
        file.write_text(config, encoding="utf-8")
        return file

    def life(self, id_: str) -> Life:
        found = find(read(WatchSettings, self.file), Query(id=id_))
        assert found.failures == []
        return found

    def of(self, name: str) -> tuple[str | None, str]:
        """Return the state of an event at the job, and where it is."""
        (one,) = self.life(self.ids[name]).events
        (at,) = [each for each in one.standings if each.part == PART]
        return at.state, at.where

    def place(self, name: str, number: int = 0) -> str:
        wanted = self.ids[name].encode()
        found = [each for each in self.job.input() if dict(each.headers)[ID] == wanted]
        return "/".join(map(str, found[number][:3]))


def test_a_record_without_a_handler_is_written_filtered_superseded_or_a_duplicate(
    job: MakeJob,
) -> None:
    told = Told(job(filter="value.n > 0"))
    told.send(
        ("low", "a", {"n": 0}),
        ("first", "a", {"n": 1}),
        ("second", "a", {"n": 2}),
        ("alone", "b", {"n": 0}),
        ("twice", "c", {"n": 1}),
    )
    sent = max(each.timestamp for each in told.job.input())
    until(lambda: time.time_ns() // 1_000_000 > sent, within=5, what="another millisecond")
    told.send(("twice", "c", {"n": 1}))
    told.job.run()
    told.send(("next", "a", {"n": 3}))
    told.job.run()
    told.send(("unread", "a", {"n": 4}))

    output = told.job.settings.output.topic
    state, where = told.of("first")
    assert (state, where.partition(" to ")[0]) == ("output", f"written by batch 0 of {PART}")
    assert f" to {output}/" in where
    assert told.of("next")[1].startswith(f"written by batch 1 of {PART} to ")
    state, where = told.of("second")
    winner = f"{told.ids['first']}@/tests at {told.place('first')}"
    taken = f"taken by batch 0 of {PART}: "
    assert (state, where.partition(", which is written")[0]) == (
        "superseded", f"{taken}superseded by {winner}",
    )  # fmt: skip
    assert told.of("low") == ("filtered", f"{taken}its filter said no, and {winner} won")
    state, where = told.of("alone")
    assert (state, where.partition(" (")[0]) == ("filtered", f"{taken}its filter said no")
    # The event is written; its second record is a duplicate, which its place names.
    assert told.of("twice")[0] == "output"
    (one,) = told.life(told.place("twice", 1)).events
    assert one.state(PART) == "duplicate"
    (at,) = [each for each in one.standings if each.part == PART]
    assert at.where.startswith(f"{taken}a duplicate of {told.place('twice')}, which is written to")
    (one,) = find(read(WatchSettings, told.file), Query(key=b"c")).events
    assert one.state(PART) == "output"
    life = told.life(told.ids["unread"])
    assert life.events[0].state(PART) == "ahead"
    assert life.waits_for == f"the next batch of {PART}"
    done = CliRunner().invoke(app, ["find", told.ids["second"], "--config", str(told.file)])
    assert done.exit_code == 0, done.output
    assert "superseded by" in done.output


def test_a_record_with_a_handler_is_retried_dead_or_skipped_by_it(job: MakeJob) -> None:
    told = Told(job(type="exact", handler=HANDLER).with_(retry={"max_attempts": 3}))
    told.send(
        ("fine", "a", {"do": "fine"}),
        ("retried", "b", {"do": "raise"}),
        ("dead", "c", {"do": "dead"}),
    )
    told.job.run()
    told.send(("skipped", "d", {"do": "skip"}))
    told.job.run()
    told.send(("skipped too", "d", {"do": "skip"}), ("split", "d", {"do": "split"}))
    told.job.run()

    assert told.of("fine")[0] == "output"
    state, where = told.of("retried")
    retry_topic = told.job.settings.output.retry_topic
    assert (state, where.partition("/0/")[0]) == (
        "retry", f"retried by batch 0 of {PART}: on {retry_topic}",
    )  # fmt: skip
    assert "broken" in where
    state, where = told.of("dead")
    assert (state, "never" in where) == ("dead", True)
    state, where = told.of("skipped")
    assert (state, where.partition(" (")[0]) == (
        "handler", f"taken by batch 1 of {PART}: the handler skipped it",
    )  # fmt: skip
    # A handler may have taken a record of that batch, so two things are possible, and both said.
    state, where = told.of("skipped too")
    assert (state, "the handler skipped it or a handler took it" in where) == ("taken", True)
    state, where = told.of("split")
    assert (state, where.partition("made ")[0]) == (
        "handled", f"taken by batch 2 of {PART}: its handler ",
    )  # fmt: skip
