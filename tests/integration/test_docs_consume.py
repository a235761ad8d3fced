"""The examples of the document on consuming do what it says, as a process and in one."""

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from outbox import Event
from tests.support.consuming import committed, produce
from tests.support.documents import ROOT, blocks, commands
from tests.support.fix_stack import MakeTopic, Servers
from tests.support.waiting import patient, until

CONSUME = ROOT / "docs/consume.md"
FILES = {block.name: block.text for block in blocks(CONSUME) if block.name}


def order(topic: str, number: int, **value: object) -> Event:
    return Event(
        topic=topic, key=f"order-{number}", type="OrderPlaced", value={"id": number, **value}
    )


@contextmanager
def command(folder: Path) -> Iterator[tuple[subprocess.Popen[str], list[str], list[str]]]:
    """Run the command of the document in `folder`; yield it with its output and its log."""
    line = next(commands(CONSUME)).line.split()
    process = subprocess.Popen(
        [str(Path(sys.executable).with_name(line[0])), *line[1:]],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "DOVECOTE_CONSUME_COMMIT_EVERY": "100ms"},
    )
    assert process.stdout is not None
    assert process.stderr is not None
    printed: list[str] = []
    logged: list[str] = []
    readers = [
        threading.Thread(target=lambda: printed.extend(process.stdout or ())),
        threading.Thread(target=lambda: logged.extend(process.stderr or ())),
    ]
    for reader in readers:
        reader.start()
    try:
        yield process, printed, logged
    finally:
        process.kill()
        process.wait(patient(10))
        for reader in readers:
            reader.join(patient(10))
        process.stdout.close()
        process.stderr.close()


def test_the_command_handles_holds_and_ends_as_the_document_says(
    stack: Servers, topic: MakeTopic, tmp_path: Path
) -> None:
    name = topic()
    kafka = stack.kafka.bootstrap
    config = FILES["consume.toml"].replace("localhost:9092", kafka)
    config = config.replace('"orders"', f'"{name}"').replace('"shipping"', f'"{name}"')
    (tmp_path / "consume.toml").write_text(config)
    (tmp_path / "shipping.py").write_text(FILES["shipping.py"])
    produce(
        kafka,
        order(name, 1, state="paid", address="a"),
        order(name, 2, state="cancelled"),
        order(name, 3, state="unpaid", address="a"),
        order(name, 4, address="a"),
        order(name, 5, state="paid", address="a"),
    )
    with command(tmp_path) as (process, printed, logged):
        until(lambda: len(printed) == 2, within=30, what="two orders shipped")
        assert sorted(printed) == ["shipping 1\n", "shipping 5\n"]
        # Between half of two seconds and all of them.
        held = re.compile(
            rf"{name}/0/3 failed \(attempt 2\) and holds its key for [12]\.\d s: KeyErr"
        )
        until(lambda: held.search("".join(logged)), within=20, what="the order without a state")
        until(lambda: committed(kafka, name)[0] == 2, within=10, what="what is completed")
        process.send_signal(signal.SIGTERM)
        assert process.wait(patient(20)) == 0
        until(lambda: "stopped" in "".join(logged), within=10, what="the end")
    assert "1 skipped: 1 handler; the first: " in "".join(logged)
    assert "(handler: cancelled)" in "".join(logged)


def test_a_service_consumes_until_it_is_told_to_stop(stack: Servers, topic: MakeTopic) -> None:
    name = topic()
    handled: list[Event] = []
    names: dict[str, Any] = {"bootstrap": stack.kafka.bootstrap, "handle": handled.append}
    text = FILES["in-a-service"].replace('"orders"', f'"{name}"')
    text = text.replace('"shipping"', f'"{name}"')
    produce(stack.kafka.bootstrap, order(name, 1))
    program = compile(text, CONSUME.name, "exec")
    thread = threading.Thread(target=exec, args=(program, names))
    thread.start()
    until(lambda: handled, within=30, what="an event")
    names["consumer"].stop()
    thread.join(patient(30))
    assert not thread.is_alive()
    assert committed(stack.kafka.bootstrap, name)[0] == 1
