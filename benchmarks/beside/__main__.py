"""Measure one kind of work: its name, and what is wanted as JSON; see `benchmarks.peers`."""

import json
import sys

from benchmarks.beside.turns import Wanted


def main() -> int:
    work, wanted = sys.argv[1], Wanted(**json.loads(sys.argv[2]))
    # Each kind of work needs clients of its own, which take seconds to import.
    if work == "relay":
        from benchmarks.beside import relay

        return int(relay.run(wanted))
    if work in {"consumer", "consumer_work"}:
        from benchmarks.beside import consumer

        return int(consumer.run(work, wanted))
    if work == "push":
        from benchmarks.beside import push

        return int(push.run(wanted))
    if work == "sessions":
        from benchmarks.beside import sessions

        return int(sessions.run(wanted))
    from benchmarks.beside import dedup

    return int(dedup.run(wanted))


if __name__ == "__main__":
    sys.exit(main())
