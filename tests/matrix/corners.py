"""The corners of the matrix: which versions meet, and which tests they run."""

from dataclasses import dataclass, replace
from enum import StrEnum


class Packages(StrEnum):
    """Which versions of Python packages a corner has."""

    LOCKED = "locked"
    """The versions in `requirements/dev.txt`."""

    OLDEST = "oldest"
    """The lower bounds in `pyproject.toml`."""

    NEWEST = "newest"
    """The newest that the bounds in `pyproject.toml` allow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Corner:
    """Versions that meet, and tests."""

    name: str
    postgres: str
    """As in `dovecote.devstack.versions`."""

    kafka: str
    python: str
    """The minor version."""

    tests: tuple[str, ...]
    """Files below `tests`, or tests of them."""

    packages: Packages = Packages.LOCKED
    pyspark: str | None = None
    """The version of PySpark, with the packages of the extra `spark`; None: no test of Spark."""

    @property
    def shortened(self) -> "Corner":
        """The same versions with the few tests that find most."""
        return replace(self, tests=SHORT_SPARK if self.pyspark else SHORT)


_DEAD, _PUSH = "integration/test_dead.py::test", "integration/test_push.py::test"
# About a minute on two processors: each part once, and what differs between servers.
SHORT = (
    f"{_DEAD}_what_is_requeued_comes_again_once_and_each_key_in_order",
    f"{_PUSH}_records_come_signed_as_cloudevents_in_order_per_key_and_are_committed",
    "integration/test_capture.py",
    "integration/test_inbox_sources.py",
    "integration/test_publications.py::test_a_relay_in_the_log_goes_on_without_it_or_says_why_it_cannot",
    "integration/test_relay_status.py",
    "integration/test_versions.py",
    "integration/test_wal_rights.py",
)
SHORT_SPARK = (
    "spark/test_dedup.py::test_a_jobs_results_are_those_of_the_policy_on_each_batch",
    "spark/test_stateful.py::test_pairing_writes_one_result_per_call_as_replay_says",
)
SERVERS = (
    *SHORT,
    "contract/test_consumer.py",
    "contract/test_publisher.py",
    "contract/test_relay.py",
    "integration/test_publications.py",
    "integration/test_schema.py",
    "integration/test_wal.py",
)
WHOLE = (
    *SERVERS,
    "contract/test_write.py",
    f"{_DEAD}_letters_are_found_by_key_reason_and_time",
    "integration/test_inbox.py",
    "integration/test_producer.py",
    f"{_PUSH}_a_failing_key_waits_in_order_while_others_go_on_and_each_event_has_one_id",
    f"{_PUSH}_n_resends_are_n_after_the_first_whatever_went_wrong_and_then_a_dead_letter",
    "integration/test_reconcile_parked.py",
    "integration/test_roles.py",
    "integration/test_shards_slots.py",
)
SPARK = ("spark/test_dedup.py", "spark/test_remembering.py", "spark/test_stateful.py")

CORNERS = (
    Corner(
        name="oldest",
        postgres="14",
        kafka="3.7",
        python="3.11",
        packages=Packages.OLDEST,
        tests=WHOLE,
    ),
    Corner(
        name="newest",
        postgres="18",
        kafka="4.4",
        python="3.14",
        packages=Packages.NEWEST,
        tests=WHOLE,
    ),
    Corner(name="postgres-15", postgres="15", kafka="4.2", python="3.13", tests=SERVERS),
    Corner(name="postgres-16", postgres="16", kafka="3.9", python="3.12", tests=SERVERS),
    Corner(
        name="postgres-17",
        postgres="17",
        kafka="3.9",
        python="3.11",
        packages=Packages.NEWEST,
        tests=SERVERS,
    ),
    Corner(
        name="spark-oldest",
        postgres="18",
        kafka="3.7",
        python="3.11",
        packages=Packages.OLDEST,
        pyspark="4.2",
        tests=SPARK,
    ),
    Corner(
        name="spark-newest",
        postgres="18",
        kafka="4.4",
        python="3.11",
        packages=Packages.NEWEST,
        pyspark="4.3",
        tests=SPARK,
    ),
)

QUICK = (CORNERS[0],)
"""The corners of CI, which runs a few of their tests; all tests with what is locked besides."""
