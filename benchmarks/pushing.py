"""`push` in its own process, until its input ends; the first line has its subscriptions."""

import json
import logging
import resource
import sys
import threading
from typing import Any

from dovecote.process.memory import relax, take_turns
from dovecote.push.delivery.engine import Engine, Surroundings
from dovecote.push.rules.sending.addresses import networks
from dovecote.push.rules.sending.ports import AttemptReport, Work
from dovecote.push.rules.subscription.subscription import subscription


class Unread:
    """A book that nobody reads."""

    def attempted(self, attempt: AttemptReport) -> None:
        """Forget it."""

    def disable(self, id_: str, url: str, reason: str) -> None:
        logging.getLogger("bench").error("%s (%s) is disabled: %s", id_, url, reason)


def main() -> None:
    wanted: dict[str, Any] = json.loads(sys.stdin.readline())
    logging.basicConfig(level=logging.ERROR)
    surroundings = Surroundings(
        brokers={"default": {"bootstrap.servers": wanted["bootstrap"]}},
        allow_addresses=networks(["127.0.0.0/8"]),
    )
    engine = Engine(surroundings, Unread(), crowded=take_turns)
    relax()
    engine.start()
    engine.reconcile([Work(subscription(each), 1) for each in wanted["subscriptions"]])
    ends = threading.Event()
    for line in sys.stdin:
        if line.strip() == "cpu":
            used = resource.getrusage(resource.RUSAGE_SELF)
            told = {id_: each.delivered for id_, each in engine.snapshot().items()}
            print(json.dumps({"cpu": used.ru_utime + used.ru_stime, **told}), flush=True)
        else:
            break
    ends.set()
    engine.stop()
