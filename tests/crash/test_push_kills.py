"""Push processes are killed under load; the endpoint's requests are counted afterwards."""

import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import pairwise

from tests.support.consuming import event, produce
from tests.support.delivering import Endpoint, Reply, Request
from tests.support.documents import ROOT
from tests.support.fix_stack import MakeTopic, Servers
from tests.support.waiting import patient, until

KILLS = int(os.environ.get("DOVECOTE_TEST_PUSH_KILLS", "2"))
KEYS = [f"k{n}" for n in range(30)]
PER_KEY = 60
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"  # noqa: S105  # of the public test vectors


@contextmanager
def member(kafka: str, topic: str, url: str) -> Iterator["subprocess.Popen[bytes]"]:
    given = {
        "signing": {"secrets": [SECRET]},
        "retry": {"type": "backoff", "base": "20ms", "ceiling": "200ms", "max_attempts": 50},
    }
    told = json.dumps({"bootstrap": kafka, "topic": topic, "url": url, "given": given})
    command = [sys.executable, "-c", "from tests.support.delivering import member; member()", told]
    process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    try:
        yield process
    finally:
        if process.stdin is not None:
            process.stdin.close()
        process.wait(patient(40))


def ids(endpoint: Endpoint) -> list[str]:
    return [request.event_id for request in list(endpoint.requests)]


def has_come(endpoint: Endpoint, requests: int, distinct: int) -> bool:
    found = ids(endpoint)
    return len(found) >= requests or len(set(found)) == distinct


def test_killed_under_load_it_loses_nothing_and_each_key_stays_in_order_under_its_ids(
    stack: Servers, topic: MakeTopic
) -> None:
    name, kafka = topic(4), stack.kafka.bootstrap
    dice = random.Random(7)
    taken: list[str] = []

    def answer(request: Request) -> Reply:
        if dice.random() < 0.05:
            return Reply(503, after=0.002)
        taken.append(request.event_id)
        return Reply(after=0.002)

    produce(kafka, *(event(name, key, n) for n in range(PER_KEY) for key in KEYS))
    expected = {f"{key}-{n}" for n in range(PER_KEY) for key in KEYS}
    with Endpoint(answer) as endpoint, ExitStack() as members:
        other = members.enter_context(member(kafka, name, endpoint.url))
        for kill in range(KILLS):
            with member(kafka, name, endpoint.url) as process:
                wanted = len(endpoint.requests) + 250
                until(
                    partial(has_come, endpoint, wanted, len(expected)),
                    within=40,
                    what=f"progress before kill {kill + 1}",
                )
                victim = dice.choice([process, other])
                victim.kill()
                victim.wait(patient(10))
            if other.poll() is not None:
                other = members.enter_context(member(kafka, name, endpoint.url))
        until(lambda: set(taken) == expected, within=60, what="everything delivered")
    assert set(ids(endpoint)) == expected
    for key in KEYS:
        of_key = [int(id_.rpartition("-")[2]) for id_ in taken if id_.startswith(f"{key}-")]
        # A repetition begins again somewhere before, and goes on in order from there.
        firsts = list(dict.fromkeys(of_key))
        assert firsts == list(range(PER_KEY)), key
        assert all(b <= a + 1 for a, b in pairwise(of_key)), key
