"""Ask for the active role of each shard in turn, and publish the shard that we get."""

import logging
import random
import threading
from collections.abc import Sequence

from dovecote.process.proof import Proof
from outbox.tokens.source import await_token
from relay.candidacy import Candidacy
from relay.errors import Fenced, LeaseLost, Outage
from relay.health import Health, Trouble
from relay.kafka.asking import Asking
from relay.metrics import Metrics
from relay.postgres.connect import connect, explained, shut_out
from relay.postgres.lease import active, candidates_of, role_of, try_acquire
from relay.relay import Relay
from relay.settings import RelaySettings

_log = logging.getLogger("dovecote.relay")

# How long Kafka may take to show that it is there, in seconds.
_ANSWER = 5.0


class Standby:
    """One of the processes that share an outbox: active for one shard, or waiting for any."""

    def __init__(
        self, settings: RelaySettings, *, health: Health, metrics: Sequence[Metrics]
    ) -> None:
        """Stand by for the shards that `settings` leave to this process, each with its metrics."""
        self._settings, self._trouble = settings, Trouble(health)
        each = zip(settings.own_shards(), metrics, strict=True)
        self._relays = [
            (shard, Relay(settings.of(shard), shard, trouble=self._trouble, metrics=own), own)
            for shard, own in each
        ]
        # Processes that start together should not all ask for the same shard first.
        random.shuffle(self._relays)
        self._keys = [role_of(settings.schema_name, shard.name) for shard, _, _ in self._relays]
        candidates = [
            candidates_of(settings.schema_name, shard.name) for shard, _, _ in self._relays
        ]
        self._candidacy = Candidacy(settings, candidates)
        self._tried, self._let_in, self._reported = 0, False, False

    def run(self, stop: threading.Event) -> None:
        """
        Relay until `stop` is set; then finish the batch in flight, if the broker answers.

        Raises:
            Refused: going on could lose or repeat events.
            SchemaMissing: the outbox does not exist, or not any more.
        """
        settings = self._settings
        await_token(settings.kafka, stop, self._trouble.slow)
        asking = Asking(settings.kafka)
        topics = [settings.of(shard).progress_topic for shard, _, _ in self._relays]
        proof = Proof(lambda: asking.trouble(topics, _ANSWER), close=asking.close)
        self._trouble.health.proven_by(proof)
        with proof.at_work():
            self._run(stop)

    def _run(self, stop: threading.Event) -> None:
        settings = self._settings
        while not stop.is_set():
            try:
                with explained(settings.schema_name, settings.dsn):
                    self._stand_by(stop)
            except Outage as error:
                # Only at the beginning: later, a server under repair may say so for a while.
                if not self._let_in and (refused := shut_out(error.__cause__)):
                    raise refused from error
                self._failed(error, stop)
            except Fenced as error:
                self._failed(error, stop)
            except LeaseLost as error:
                self._candidacy.defer()
                self._failed(error, stop)
        self._candidacy.withdraw()
        self._trouble.recovered("stopped")

    def _stand_by(self, stop: threading.Event) -> None:
        """Ask for the active role once, and use it as long as it lasts."""
        if not self._candidacy.may_ask() or not self._was_active(stop):
            self._let_in = True
            if (reason := self._candidacy.stand()) is None:
                self._trouble.recovered("standby")
            else:
                self._trouble.slow(reason)
            self._report()
        stop.wait(self._settings.standby_poll.total_seconds())

    def _was_active(self, stop: threading.Event) -> bool:
        """Use the active role as long as it lasts; return False if another relay has it."""
        settings = self._settings
        with try_acquire(settings.dsn, self._keys, settings.lease.total_seconds()) as lease:
            self._let_in = True
            if lease is None:
                return False
            self._candidacy.withdraw()
            self._tried, self._reported = lease.number, False
            _, relay, _ = self._relays[self._tried]
            relay.be_active(lease, stop)
        return True

    def _report(self) -> None:
        """Log once who is active instead; otherwise a standby would look as if it hung."""
        if self._reported:
            return
        with connect(self._settings.dsn, purpose="standby") as conn:
            found = [where for key in self._keys if (where := active(conn, key))]
        # The active relay may have ended since we asked for its role; then the next turn takes it.
        if found:
            are = "is" if len(found) == 1 else "are"
            _log.info("standing by: %s %s active", ", ".join(found), are)
            self._reported = True

    def _failed(self, error: Exception, stop: threading.Event) -> None:
        _, _, metrics = self._relays[self._tried]
        self._trouble.failed(error, metrics, stop)
