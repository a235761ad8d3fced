"""The corners of the matrix: which versions meet, and which tests they run."""

from dataclasses import dataclass
from enum import StrEnum


class Packages(StrEnum):
    """Which versions of Python packages a corner has."""

    LOCKED = "locked"
    """Those in `requirements/dev.txt`."""

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
    """Files below `tests`."""

    packages: Packages = Packages.LOCKED
    pyspark: str | None = None
    """The version of PySpark, with the packages of the extra `spark`; None: no test of Spark."""


# A dozen tests: each part once, from the write to the answer of an endpoint.
SHORT = (
    "contract/test_write.py",
    "integration/test_wal_rights.py",
    "integration/test_relay_status.py",
    "integration/test_capture.py",
    "integration/test_relay.py",
    "integration/test_inbox_sources.py",
)
CORE = (
    "contract/test_consumer.py",
    "contract/test_publisher.py",
    "contract/test_relay.py",
    "contract/test_write.py",
    "integration/test_capture.py",
    "integration/test_inbox.py",
    "integration/test_push.py",
    "integration/test_relay_wal.py",
    "integration/test_roles.py",
    "integration/test_schema.py",
    "integration/test_shards.py",
    "integration/test_wal.py",
)
MORE = (
    *CORE,
    "crash/test_producer.py",
    "integration/test_capture_interleaved.py",
    "integration/test_consumer_retries.py",
    "integration/test_consumer_takeover.py",
    "integration/test_dead.py",
    "integration/test_inbox_claims.py",
    "integration/test_producer.py",
    "integration/test_reconcile_cut.py",
    "integration/test_relay.py",
    "integration/test_rights.py",
    "integration/test_schema_upgrades.py",
    "integration/test_shards_wal.py",
    "integration/test_wal_rights.py",
    "integration/test_wal_slots.py",
    "integration/test_write.py",
)
SPARK = ("spark/test_dedup.py", "spark/test_sink.py", "spark/test_stateful.py")

CORNERS = (
    Corner(
        name="oldest",
        postgres="14",
        kafka="3.7",
        python="3.11",
        packages=Packages.OLDEST,
        tests=MORE,
    ),
    Corner(
        name="newest",
        postgres="18",
        kafka="4.4",
        python="3.14",
        packages=Packages.NEWEST,
        tests=MORE,
    ),
    Corner(name="postgres-15", postgres="15", kafka="4.2", python="3.13", tests=CORE),
    Corner(name="postgres-16", postgres="16", kafka="3.9", python="3.12", tests=CORE),
    Corner(
        name="postgres-17",
        postgres="17",
        kafka="3.9",
        python="3.11",
        packages=Packages.NEWEST,
        tests=CORE,
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

QUICK = (
    Corner(
        name="oldest",
        postgres="14",
        kafka="3.7",
        python="3.11",
        packages=Packages.OLDEST,
        tests=SHORT,
    ),
)
"""The corners of CI, which runs all tests with what is locked besides."""
