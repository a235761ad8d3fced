"""Open and close the Spark that a job runs on."""

import os
import re
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from subprocess import PIPE, Popen, TimeoutExpired
from typing import IO

from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from outbox.errors import BadSettings
from spark_jobs.query.java_classes import JavaClasses
from spark_jobs.query.settings import SparkSettings

_LOCAL_CHECKPOINTS = (
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
)
STATE_STORE = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    # Otherwise the whole store is written down after each batch, though nothing has changed.
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
}
"""What Spark's stateful operator in Python needs."""

_JAVA_DEFAULTS = "spark.driver.defaultJavaOptions"
_COMPILING = re.compile(r"-XX:[+-]?Tier|-Xint\b|-Xcomp\b")
_JAVA_OPTIONS = {
    # Batches are short-lived garbage; what collects it beside them takes their processors.
    "-XX:+UseParallelGC": re.compile(r"-XX:\+Use\w*GC\b"),
    # What Java has to do beside the rows is much code for each batch, little of it often: to
    # compile that as if it was takes an idle job, for minutes, as long as to run it. So ten times
    # Java's own thresholds; what each row goes through is beyond them within a batch.
    "-XX:Tier4InvocationThreshold=50000": _COMPILING,
    "-XX:Tier4MinInvocationThreshold=6000": _COMPILING,
    "-XX:Tier4CompileThreshold=150000": _COMPILING,
}
"""What a local Java is asked for, unless somebody chose something of that kind."""
_JVM_SECONDS = 20
# Spark itself asks Java for the module that Java warns of.
_NOISE = b"WARNING: Using incubator modules"
# A worker that had nothing to do for a minute is let go; it tries to say goodbye, to nobody.
_TRACEBACK = b"Traceback (most recent call last)"
_DISMISSED = (b'pyspark/daemon.py", line ', b"BrokenPipeError: [Errno 32]")


def configuration(
    settings: SparkSettings, *, master: str | None, jars: Iterable[Path] = ()
) -> dict[str, str]:
    """Return the Spark configuration of a job: defaults, the settings' own, what must be."""
    conf = {
        "spark.app.name": f"dovecote {settings.query}",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        # Options of the source hold passwords; they are not for plans and logs.
        "spark.sql.redaction.options.regex": "(?i)url|password|jaas|keystore|truststore",
    }
    if master is not None:
        conf["spark.master"] = master
        if master.startswith("local"):
            conf |= _local()
    if listed := ",".join(str(jar) for jar in jars):
        conf["spark.jars"] = listed
    if "://" not in settings.checkpoint:
        # Without it each file of the checkpoint forks a process. It needs a file system's rename.
        conf["spark.sql.streaming.checkpointFileManagerClass"] = _LOCAL_CHECKPOINTS
    conf |= settings.conf
    if conf.get("spark.master", "").startswith("local"):
        given = _java_options(conf)
        ours = [option for option, kind in _JAVA_OPTIONS.items() if not kind.search(given)]
        conf[_JAVA_DEFAULTS] = " ".join([conf.get(_JAVA_DEFAULTS, ""), *ours]).strip()
    # The same rows must meet in the same shuffle partition when a batch is run again.
    conf |= {
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.shuffle.partitions": str(settings.shuffle_partitions),
    }
    return conf


def _local() -> dict[str, str]:
    log = Path(__file__).with_name("log4j2.properties")
    return {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={log.as_uri()}",
        # Rows go to Python and back, and lie on this machine's disk for moments.
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.shuffle.compress": "false",
    }


def _java_options(conf: Mapping[str, str]) -> str:
    """Return what Java is asked for by others: of two garbage collectors, it ends at once."""
    given = [conf.get(_JAVA_DEFAULTS, ""), conf.get("spark.driver.extraJavaOptions", "")]
    given += [os.environ.get(name, "") for name in ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS")]
    return " ".join(given)


def open_session(conf: Mapping[str, str]) -> SparkSession:
    """
    Return a session with `conf`, over what spark-submit says.

    Raises:
        BadSettings: speculation is on.
    """
    # Workers must run on this very Python: another may lack our packages.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if conf.get("spark.master", "").startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        _launch(conf)
    builder = SparkSession.builder
    for name, value in conf.items():
        builder = builder.config(name, value)
    spark: SparkSession = builder.getOrCreate()
    if spark.sparkContext.getConf().get("spark.speculation", "false") == "true":
        msg = "spark.speculation is on: a second copy of a task would handle its records twice"
        raise BadSettings(msg)
    return spark


def close_session(spark: SparkSession) -> None:
    """Stop Spark, and the JVM if this process started it."""
    gateway = spark.sparkContext._gateway  # noqa: SLF001  # PySpark leaves its JVM to the end of the process
    spark.stop()
    jvm: Popen[bytes] | None = getattr(gateway, "proc", None)
    if gateway is None or jvm is None:
        return
    gateway.shutdown()
    SparkContext._gateway = SparkContext._jvm = None  # noqa: SLF001  # or the next session would call a dead one
    if jvm.stdin is not None:
        jvm.stdin.close()  # which tells it to end
    try:
        jvm.wait(_JVM_SECONDS)
    except TimeoutExpired:
        jvm.kill()
        jvm.wait()


def _launch(conf: Mapping[str, str]) -> None:
    """Start the JVM, and leave out of what it says on stderr the one line that means nothing."""
    if SparkContext._gateway is not None:  # noqa: SLF001  # no public way to ask
        return
    spark_conf = SparkConf(loadDefaults=False).setAll(list(conf.items()))
    gateway = launch_gateway(spark_conf, {"stderr": PIPE})  # type: ignore[no-untyped-call]  # it has no types
    threading.Thread(target=_pass_on, args=(gateway.proc.stderr,), daemon=True).start()
    gateway.jvm = JavaClasses(gateway)
    SparkContext._ensure_initialized(gateway=gateway)  # noqa: SLF001  # what SparkContext itself calls


def _pass_on(stderr: IO[bytes]) -> None:
    with stderr:
        for line in worth_telling(stderr):
            sys.stderr.write(line.decode(errors="replace"))
            sys.stderr.flush()


def worth_telling(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Give the lines of Spark's stderr that mean something."""
    begun: list[bytes] = []
    for line in lines:
        if line.startswith(_TRACEBACK):
            begun.append(line)  # of what, only the next line says
        elif any(each in line for each in _DISMISSED):
            begun.clear()
        elif not line.startswith(_NOISE):
            yield from begun
            begun.clear()
            yield line
    # What only begins to be said is a goodbye, too: Java ended while it passed it on.


ADMIN_SECONDS = 30.0
