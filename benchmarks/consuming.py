"""
A consumer in its own process, which checks the order of the records that it handles, and counts.
"""

import asyncio
import json
import logging
import os
import resource
import sys
import threading
import time
from typing import Any

from benchmarks.harness import peak_bytes
from dedup.consumer import Consumer
from dedup.settings.consumer import ConsumerSettings
from dovecote.process.memory import relax
from outbox.event import Event


class Handler:
    """Works for a given time, and checks that each key's records come in order, each once."""

    def __init__(self, total: int, work_seconds: float) -> None:
        self.work_seconds, self._total = work_seconds, total
        self.seen: dict[bytes | str, int] = {}
        self.handled = self.violations = self.duplicates = 0
        self.began = self.ended = self.cpu = 0.0
        self._lock = threading.Lock()
        self.done = threading.Event()

    def check(self, key: Any, value: Any) -> None:  # noqa: ANN401  # a key and a value of any kind
        number = int(value[:10])
        if not self.began:
            self.began, self.cpu = time.monotonic(), _cpu()
        last = self.seen.get(key, -1)
        if number == last + 1:
            self.seen[key] = number
        elif number <= last:
            self.duplicates += 1
            return
        else:
            self.violations += 1
        self._count()

    def _count(self) -> None:
        self.handled += 1
        if self.handled == self._total:
            self.ended, self.cpu = time.monotonic(), _cpu() - self.cpu
            self.done.set()

    def told(self) -> dict[str, float]:
        """Return what was found."""
        return {
            "handled": self.handled,
            "seconds": self.ended - self.began,
            "cpu": self.cpu,
            "violations": self.violations,
            "duplicates": self.duplicates,
            "peak_bytes": peak_bytes(os.getpid()),
        }


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def main() -> None:
    wanted = json.loads(sys.argv[1])
    logging.basicConfig(level=logging.WARNING)
    work = wanted["work_ms"] / 1000
    handler = Handler(wanted["total"], work)

    def sync(event: Event) -> None:
        handler.check(event.key, event.value)
        if work:
            time.sleep(work)

    async def awaited(event: Event) -> None:
        handler.check(event.key, event.value)
        if work:
            await asyncio.sleep(work)

    settings = ConsumerSettings.model_validate(wanted["settings"])
    consumer = Consumer(settings, awaited if wanted["handler"] == "async" else sync)

    def watch() -> None:
        handler.done.wait(wanted["within"])
        consumer.stop()

    threading.Thread(target=watch, daemon=True).start()
    relax()
    consumer.run()
    print(json.dumps(handler.told()))
