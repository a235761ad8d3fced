"""Fork processes that have producers and consumers; run as a program."""

import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable

from dedup.consumer import Consumer
from dedup.settings.consumer import ConsumerSettings
from outbox.errors import NotAccepted
from outbox.event import Event
from outbox.producer.producer import Options, Producer
from tests.support.waiting import patient

# Seconds after which a process counts as hanging, and is ended.
_HANGS_SECONDS = 120


def event(topic: str, key: str) -> Event:
    return Event(topic=topic, type="Forked", key=key, value=None)


def forked(child: Callable[[], object]) -> None:
    """Fork, let the child end like a program, and wait until it has."""
    pid = os.fork()
    if pid == 0:
        signal.alarm(_HANGS_SECONDS)
        child()
        sys.exit(0)
    _, status = os.waitpid(pid, 0)
    if status != 0:
        msg = f"the child ended with {os.waitstatus_to_exitcode(status)}"
        raise AssertionError(msg)


def producer(dsn: str, kafka: str, topic: str) -> None:
    """Fork while events are on their way, and send in both processes."""
    ours = Producer(dsn, {"bootstrap.servers": kafka}, options=Options(fresh=True))
    ours.send(event(topic, "first"))
    promises = [ours.send_soon(event(topic, f"parent-{number}")) for number in range(200)]

    def child() -> None:
        try:
            if not promises[-1].done():
                promises[-1].result(patient(10))
        except NotAccepted:
            pass  # only the parent learns its result
        for number in range(20):
            ours.send(event(topic, f"child-{number}"))
        ours.close()

    forked(child)
    for promise in promises:
        promise.result(patient(30))
    ours.send(event(topic, "last"))
    ours.close()


def abandoned(dsn: str, kafka: str, topic: str) -> None:
    """Fork, and let the child end without closing the producer."""
    ours = Producer(dsn, {"bootstrap.servers": kafka}, options=Options(fresh=True))
    ours.send(event(topic, "first"))
    forked(lambda: None)
    forked(ours.close)
    ours.send(event(topic, "last"))
    ours.close()


def multiprocessed(dsn: str, kafka: str, topic: str) -> None:
    """Send in a process of multiprocessing."""
    ours = Producer(dsn, {"bootstrap.servers": kafka}, options=Options(fresh=True))
    ours.send(event(topic, "first"))
    process = multiprocessing.get_context("fork").Process(
        target=ours.send, args=(event(topic, "child"),)
    )
    process.start()
    process.join(_HANGS_SECONDS)
    if process.exitcode != 0:
        msg = f"the child ended with {process.exitcode}"
        raise AssertionError(msg)
    ours.close()


def consumer(dsn: str, kafka: str, topic: str) -> None:
    """Create a consumer and run it in a child, while the parent runs another one."""
    seen: list[bytes | None] = []

    def settings(group: str) -> ConsumerSettings:
        return ConsumerSettings.model_validate(
            {
                "topics": [topic],
                "group": f"{topic}-{group}",
                "kafka": {"bootstrap.servers": kafka},
                "start": "earliest",
            }
        )

    begun = threading.Event()
    parents = Consumer(settings("parent"), lambda _: begun.set())

    def handle(found: Event) -> None:
        seen.append(found.key_bytes())
        childs.stop()

    childs = Consumer(settings("child"), handle)
    with Producer(dsn, {"bootstrap.servers": kafka}, options=Options(fresh=True)) as ours:
        ours.send(event(topic, "first"))
    thread = threading.Thread(target=parents.run)
    thread.start()
    begun.wait(patient(30))

    def child() -> None:
        childs.run()
        if seen != [b"first"]:
            msg = f"the child has seen {seen}"
            raise AssertionError(msg)

    forked(child)
    parents.stop()
    thread.join()


def green(dsn: str, kafka: str, topic: str) -> None:
    """Send where gevent has replaced everything but threads."""
    with Producer(dsn, {"bootstrap.servers": kafka}, options=Options(fresh=True)) as ours:
        ours.send(event(topic, "first"))


if __name__ == "__main__":
    signal.alarm(2 * _HANGS_SECONDS)
    what, *where = sys.argv[1:]
    library, _, patched = os.environ.get("PATCH", "").partition(" ")
    if library == "gevent":
        from gevent import monkey  # type: ignore[import-untyped]  # it has no types

        monkey.patch_all(thread=patched == "threads")
    elif library == "eventlet":
        import eventlet  # type: ignore[import-untyped]  # it has no types

        eventlet.monkey_patch(thread=patched == "threads")
    {
        "producer": producer,
        "abandoned": abandoned,
        "multiprocessed": multiprocessed,
        "consumer": consumer,
        "green": green,
    }[what](*where)
