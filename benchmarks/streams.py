"""
The peer of `spark_sessions`: Kafka Streams on the same topic, with its default store and caches.

It needs a JDK, because its program is compiled at the start.
"""

import json
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from uuid import uuid4

from benchmarks import harness
from dovecote.devstack.kafka.jars import JarSet, fetch
from dovecote.devstack.kafka.java import java

VERSION = "4.1.0"

JARS = JarSet(
    f"kafka-streams-{VERSION}",
    f"""\
    <dependency org="org.apache.kafka" name="kafka-streams" rev="{VERSION}" conf="default"/>
    <dependency org="org.slf4j" name="slf4j-nop" rev="1.7.36" conf="default"/>
""",
)

_PROGRAM = Path(__file__).with_name("StreamsSessions.java")
_SECONDS = 400


def sessions(
    bootstrap: str, topic: str, guarantee: str, *, warm_up: int, records: int
) -> Mapping[str, float]:
    """
    Aggregate the records of `topic` from its beginning; do not count the first `warm_up` of them.

    Returns seconds in total, seconds for closing, and processor seconds, of the `records` that
    count.
    """
    found, name = java(), f"streams-{uuid4().hex[:12]}"
    command = [str(found.executable), *found.options, "-Xmx2g", "-cp", f"{fetch(JARS)}/*"]
    with tempfile.TemporaryDirectory() as folder:
        output = harness.topic_at(bootstrap, f"{name}-out")
        places = (bootstrap, name, topic, output)
        work = (str(warm_up), str(records), guarantee, "2", folder)
        done = subprocess.run(
            [*command, str(_PROGRAM), *places, *work],
            stdout=subprocess.PIPE,
            timeout=_SECONDS,
            check=False,
        )
    if done.returncode:
        raise SystemExit(
            "Kafka Streams has failed, see above; it needs a JDK. `--peers` leaves it out"
        )
    told: Mapping[str, float] = json.loads(done.stdout)
    return told
