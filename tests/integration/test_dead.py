"""`dovecote consume dead`: dead letters are shown, requeued once and in order, or dropped."""

import json
import logging
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from typer.testing import CliRunner
from typer.testing import Result as Outcome

from dedup.kafka import dead_topic
from dedup.kafka.dead_newest import newest
from dedup.kafka.dead_topic import DeadTopic, kafka_errors
from dedup.kafka.letters import Letters
from dedup.kafka.moving import Mover, SizeLimits
from dedup.retries import copies
from dedup.retries.letter import Which, target
from dedup.rules.identity import Identity
from dedup.rules.record import Record
from dovecote.cli.main import app
from outbox import envelope
from outbox.envelope import ID, RESOLVES, Delivery
from outbox.errors import BadSettings, DovecoteError
from tests.support.fix_stack import MakeTopic, Servers
from tests.support.stale import Cut
from tests.support.waiting import consume, patient

NOW = 1_800_000_000_000


class Desk(NamedTuple):
    """A dead-letter topic with its settings, as an operator has them."""

    orders: str
    dead: str
    config: Path
    bootstrap: str

    def run(self, command: str, *arguments: str, **kwargs: bool) -> Outcome:
        words = ["consume", "dead", command, *arguments, "--config", str(self.config)]
        return CliRunner().invoke(app, words, **kwargs)  # type: ignore[arg-type]  # switches of it

    def ids(self, *arguments: str) -> list[str]:
        done = self.run("list", "--json", *arguments)
        assert done.exit_code == 0, done.output
        return [json.loads(line)["id"] for line in done.output.splitlines()]

    def events(self) -> list[tuple[str, bytes | None]]:
        """Return the ids and values in the topic of orders, in its order."""
        return [
            (envelope.identity(held(message))[1], message.value())
            for message in consume(self.bootstrap, self.orders)
        ]


def held(message: Any) -> Record:
    """Return a record with what its headers say."""
    return Record("", 0, 0, 0, None, None, message.headers() or ())


@pytest.fixture
def desk(topic: MakeTopic, stack: Servers, tmp_path: Path) -> Desk:
    orders, dead = topic(1), topic(2)
    config = tmp_path / "consume.toml"
    config.write_text(
        f'topics = ["{orders}"]\ngroup = "g"\n'
        f'[kafka]\n"bootstrap.servers" = "{stack.kafka.bootstrap}"\n'
        f'[retries]\ndead_letter_topic = "{dead}"\n'
    )
    return Desk(orders, dead, config, stack.kafka.bootstrap)


@pytest.fixture
def buried(desk: Desk) -> Desk:
    """Six dead letters of keys `a` and `b` in turn, for two reasons."""
    with Letters({"bootstrap.servers": desk.bootstrap}) as letters:
        for number in range(6):
            record = Record(
                desk.orders,
                0,
                number,
                NOW,
                b"ab"[number % 2 :][:1],
                f"{number}".encode(),
                [(ID, f"e{number}".encode()), ("dovecote_attempt", b"3")],
            )
            error = "KeyError: 'amount'" if number < 3 else "timed out"
            letters.send(desk.dead, copies.dead(record, record.identity, now=NOW, error=error))
    return desk


def test_letters_are_found_by_key_reason_and_time(buried: Desk) -> None:
    assert sorted(buried.ids()) == [f"e{number}" for number in range(6)]
    assert buried.ids("--key", "a") == ["e0", "e2", "e4"]
    assert sorted(buried.ids("--reason", "TIMED")) == ["e3", "e4", "e5"]
    assert buried.ids("--key", "b", "--reason", "amount") == ["e1"]
    soon = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    assert buried.ids("--since", soon) == []
    assert len(buried.ids("--until", soon, "--since", "2026-01-01")) == 6


def test_a_groups_letters_are_its_own_and_those_of_none_unless_asked(desk: Desk) -> None:
    with Letters({"bootstrap.servers": desk.bootstrap}) as letters:
        for number, group in enumerate(("g", "other", None)):
            headers = envelope.with_delivery([(ID, b"e%d" % number)], Delivery(group=group))
            record = Record(desk.orders, 0, number, NOW, b"k", b"v", headers)
            letters.send(desk.dead, copies.dead(record, record.identity, now=NOW, error="x"))

    assert desk.ids() == ["e0", "e2"]
    assert desk.ids("--group", "other") == ["e1"]
    assert desk.ids("--group", "*") == ["e0", "e1", "e2"]
    assert "  group other  " in desk.run("list", "--group", "other").output
    assert json.loads(desk.run("show", "e1", "--json").output)["group"] == "other"
    assert desk.run("requeue", "--all").output == "requeued 2 records\n"
    assert desk.run("drop", "--all", "--group", "other").output == "dropped 1 record\n"


def test_a_list_says_where_each_comes_from_and_why_it_is_dead(buried: Desk) -> None:
    shown = buried.run("list", "--limit", "2", "--key", "a").output.splitlines()

    assert shown[0].startswith(f"e0  {buried.orders}/0/0  key 'a'  ")
    assert shown[0].endswith("KeyError: 'amount' (x3)")
    assert shown[-1] == "2 of 3 dead letters"


def test_one_is_shown_with_the_bytes_and_headers_that_it_had(buried: Desk) -> None:
    shown = json.loads(buried.run("show", "e3", "--json").output)

    assert (shown["value"], shown["reason"], shown["attempts"]) == ("3", "timed out", 3)
    assert ["dovecote_origin", f"{buried.orders}/0/3"] in shown["headers"]
    assert "reason       timed out" in buried.run("show", "e3").output


def test_what_is_requeued_comes_again_once_and_each_key_in_order(buried: Desk) -> None:
    assert buried.run("requeue", "--key", "a").output == "requeued 3 records\n"

    assert buried.events() == [("e0", b"0"), ("e2", b"2"), ("e4", b"4")]
    message = consume(buried.bootstrap, buried.orders)[0]
    delivery = envelope.delivery(held(message))
    assert (delivery.attempt, delivery.round, delivery.error) == (1, 1, None)
    assert sorted(buried.ids()) == ["e1", "e3", "e5"]

    again = buried.run("requeue", "--key", "a")
    assert isinstance(again.exception, DovecoteError)
    assert len(buried.events()) == 3


def test_what_is_dropped_is_listed_no_more_and_stays_in_the_topic(buried: Desk) -> None:
    assert buried.run("drop", "e1", "e2").output == "dropped 2 records\n"

    assert sorted(buried.ids()) == ["e0", "e3", "e4", "e5"]
    assert buried.events() == []
    kept = consume(buried.bootstrap, buried.dead)
    assert sum(1 for each in kept if RESOLVES not in dict(each.headers() or ())) == 6


def test_an_id_that_is_not_there_is_said_and_the_others_are_done(buried: Desk) -> None:
    done = buried.run("requeue", "e1", "e99")

    assert isinstance(done.exception, DovecoteError)
    assert "e99" in str(done.exception)
    assert [id_ for id_, _ in buried.events()] == ["e1"]


@pytest.mark.parametrize("words", [[], ["--all", "--key", "a"]])
def test_nothing_is_done_to_all_unless_that_is_said(buried: Desk, words: list[str]) -> None:
    with pytest.raises(BadSettings, match="--all alone"):
        buried.run("drop", *words, catch_exceptions=False)
    assert buried.run("drop", "--all").output == "dropped 6 records\n"


def test_a_record_does_not_say_where_it_goes(desk: Desk) -> None:
    elsewhere = Record("elsewhere", 0, 1, NOW, b"k", b"v", [(ID, b"e1")])
    with Letters({"bootstrap.servers": desk.bootstrap}) as letters:
        letters.send(desk.dead, copies.dead(elsewhere, Identity("/s", "e1"), now=NOW, error="x"))

    with pytest.raises(DovecoteError, match="'elsewhere', which is not in the settings"):
        desk.run("requeue", "--all", catch_exceptions=False)
    assert desk.ids() == ["e1"]
    assert desk.run("requeue", "--all", "--to", desk.orders).exit_code == 0
    assert desk.events() == [("e1", b"v")]


def test_a_letter_of_a_job_goes_back_to_a_topic_that_its_pattern_takes_in(buried: Desk) -> None:
    found = buried.config.read_text().split("\n", 2)[2]
    pattern = f"{buried.orders[:-1]}?"
    buried.config.write_text(f'{found}[source]\ntopics = ["{pattern}", "!{buried.orders}"]\n')
    with pytest.raises(DovecoteError, match="which is not in the settings"):
        buried.run("requeue", "e0", catch_exceptions=False)

    buried.config.write_text(f'{found}[source]\ntopics = ["{pattern}"]\n')
    assert buried.run("requeue", "e0").exit_code == 0

    assert buried.events() == [("e0", b"0")]


def test_notes_of_dovecote_are_no_records_and_come_only_with_letters(buried: Desk) -> None:
    kafka = {"bootstrap.servers": buried.bootstrap}
    dead = DeadTopic(kafka, buried.dead)

    def keys() -> list[bytes | None]:
        return [each.key() for each in consume(buried.bootstrap, buried.dead)]

    for which in (Which(reason="no such reason"), Which(ids=["nobody"])):
        assert dead.resolve(which, "dropped", lambda _: "").done == []
    assert b"dovecote.fence" not in keys()

    assert len(dead.resolve(Which(ids=["e0"]), "dropped", lambda _: "").done) == 1
    assert keys().count(b"dovecote.fence") == 2
    # There are six letters, and the note of what became of one.
    assert newest(dead, Which(), 10).looked == 7
    assert dead.resolve(Which(ids=["e0"]), "dropped", lambda _: "").done == []
    assert keys().count(b"dovecote.fence") == 2


def test_a_letter_goes_back_to_a_topic_that_a_consumers_pattern_takes_in(buried: Desk) -> None:
    found = buried.config.read_text().split("\n", 1)[1]
    buried.config.write_text(f'topics = ["^{buried.orders}x"]\n{found}')
    with pytest.raises(DovecoteError, match="which is not in the settings"):
        buried.run("requeue", "e0", catch_exceptions=False)

    buried.config.write_text(f'topics = ["^{buried.orders[:-1]}"]\n{found}')
    assert buried.run("requeue", "e0").exit_code == 0
    assert buried.events() == [("e0", b"0")]


def test_no_letter_is_requeued_to_the_dead_letters(buried: Desk) -> None:
    with pytest.raises(BadSettings, match="the topic of the dead letters themselves"):
        buried.run("requeue", "--all", "--to", buried.dead, catch_exceptions=False)
    assert len(buried.ids()) == 6


def test_a_topic_that_is_not_there_is_said_at_once(buried: Desk) -> None:
    with pytest.raises(DovecoteError, match=r"no topic 'nowhere' .* by --to"):
        buried.run("requeue", "--all", "--to", "nowhere", catch_exceptions=False)
    assert len(buried.ids()) == 6


def test_operators_at_the_same_time_requeue_each_letter_once(buried: Desk) -> None:
    dead = DeadTopic({"bootstrap.servers": buried.bootstrap}, buried.dead)
    together, refused = threading.Barrier(3), list[str]()

    def requeue() -> int:
        def to(letter: Any) -> str:
            return target(letter, to=buried.orders, known=())

        together.wait(patient(10))
        try:
            return len(dead.resolve(Which(), "requeued", to).done)
        except DovecoteError as error:
            refused.append(str(error))
            return 0

    with ThreadPoolExecutor(3) as pool:
        results = [pool.submit(requeue) for _ in range(3)]
        assert sum(each.result(patient(60)) for each in results) == 6
    assert all("somebody else" in each for each in refused)
    assert len(buried.events()) == 6


def handles_an_error(_: logging.LogRecord) -> bool:
    """Write no line, and handle an error of one's own, as any filter or handler may."""
    with suppress(KeyError):
        raise KeyError
    return False


@pytest.fixture
def busy_log() -> Iterator[None]:
    log = logging.getLogger("dovecote.consumer.kafka")
    log.addFilter(handles_an_error)
    log.setLevel(logging.DEBUG)
    yield
    log.removeFilter(handles_an_error)
    log.setLevel(logging.NOTSET)


@pytest.mark.usefixtures("busy_log")
@pytest.mark.parametrize("debug", ["all", "eos", "broker"])
def test_an_operator_who_came_first_is_told_whatever_the_log_does(
    buried: Desk, debug: str
) -> None:
    """The client's error may come in the midst of a line of the log, and be lost there."""
    kafka = {"bootstrap.servers": buried.bootstrap, "debug": debug}
    limits = SizeLimits(kafka)
    first = Mover(kafka, buried.dead, limits)

    def overtaken() -> None:
        with kafka_errors(buried.dead), first.transaction():
            first.mark(0, b"k", [])
            Mover(kafka, buried.dead, limits)
            for _ in range(20):
                first.mark(0, b"k", [])

    with pytest.raises(DovecoteError, match="somebody else"):
        overtaken()


def test_a_letter_is_requeued_once_whatever_a_broker_says_that_was_cut_off(
    buried: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut = Cut()
    cut.off({"bootstrap.servers": buried.bootstrap}, buried.dead)
    assert buried.run("requeue", "--all").exit_code == 0
    assert len(buried.events()) == 6
    monkeypatch.setattr(dead_topic, "Consumer", cut.consumer)
    cut.answers(times=3)

    DeadTopic({"bootstrap.servers": buried.bootstrap}, buried.dead).resolve(
        Which(), "requeued", lambda _: buried.orders
    )

    assert len(buried.events()) == 6
    assert cut.asked == 3
