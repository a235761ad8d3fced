"""A consumer's process with handlers and records that nobody expects."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.consuming import event, produce
from tests.support.fix_stack import MakeTopic, Servers
from tests.support.waiting import patient

FILE = """
topics = ["{topic}"]
group = "{topic}"
drain = "5s"

[kafka]
"bootstrap.servers" = "{kafka}"
"""


@pytest.fixture
def kafka(stack: Servers) -> str:
    return stack.kafka.bootstrap


@pytest.mark.parametrize("form", ["def", "async def"])
def test_a_handler_that_exits_ends_the_process_with_its_status_and_a_reason(
    kafka: str, topic: MakeTopic, tmp_path: Path, form: str
) -> None:
    name = topic()
    produce(kafka, event(name, "k", 1))
    (tmp_path / "c.toml").write_text(FILE.format(topic=name, kafka=kafka))
    (tmp_path / "leaves.py").write_text(
        f"import sys\n\n\n{form} handle(event):\n    sys.exit(7)\n"
    )
    dovecote = str(Path(sys.executable).with_name("dovecote"))
    ended = subprocess.run(
        [dovecote, "consume", "run", "-c", "c.toml", "--handler", "leaves:handle"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=patient(40),
        check=False,
    )
    assert ended.returncode == 7
    last = ended.stderr.splitlines()[-1]
    assert last.startswith("dovecote: the handler called sys.exit(7) (leaves.py:5 in handle)")
