"""Open and close the Spark in which a job runs."""

import os
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping
from subprocess import PIPE, Popen, TimeoutExpired
from typing import IO, Any

from py4j.java_gateway import JavaGateway, JVMView  # type: ignore[import-untyped]  # it has no types
from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from dovecote.process.logs import one_line
from outbox.errors import BadSettings
from outbox.secrets import fresh
from spark_jobs.failures import SPARKS, told
from spark_jobs.query.conf import is_secret, refusal

STATE_STORE = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    # Otherwise the whole store is written after each batch, even if nothing has changed.
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
}
"""The configuration that Spark's stateful operator in Python needs."""

_JVM_SECONDS = 20
# Spark itself asks Java for the module about which Java warns.
_NOISE = b"WARNING: Using incubator modules"
# Spark dismisses a worker that had nothing to do for a minute, and the planner of a query that has
# ended; they try to say goodbye, but nobody listens.
_TRACEBACK = b"Traceback (most recent call last)"
_CHAINED = (_TRACEBACK, b"During handling of the above", b"The above exception was")
_DISMISSED = (b'pyspark/daemon.py", line ', b"python_streaming_source_runner.py")
_GOODBYE = (b"BrokenPipeError", b"ConnectionResetError", b"EOFError")


def submitted() -> dict[str, str]:
    """Return the configuration with which spark-submit has started the Java of this process."""
    SparkContext._ensure_initialized()  # noqa: SLF001  # what SparkContext itself calls
    return dict(SparkConf().getAll())


def open_session(conf: Mapping[str, str]) -> SparkSession:
    """
    Return a session with `conf`, which overrides what spark-submit says.

    Raises:
        BadSettings: the cluster's own configuration has something with which no job runs.
        JobError: Spark does not start; the message says why.
    """
    # Workers must run on this very Python, because another one may lack our packages.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    try:
        spark = _opened(conf)
    except SPARKS as error:
        raised = told(error)  # asks Java for the text, before it ends
        _end(SparkContext._gateway)  # noqa: SLF001  # as below
        raise raised from error
    if (problem := refusal(dict(spark.sparkContext.getConf().getAll()))) is not None:
        close_session(spark)
        msg = f"{problem}. It is set where Spark is (spark-defaults.conf, or spark-submit --conf)"
        raise BadSettings(msg)
    if "spark.executor.syncLogLevel.enabled" in conf and (level := conf.get("spark.log.level")):
        spark.sparkContext.setLogLevel(level)  # the first time, there was nobody to pass it on
    return spark


def _opened(conf: Mapping[str, str]) -> SparkSession:
    if conf.get("spark.master", "").startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        # All of this is on Java's command line, which every user of the machine can read.
        _launch({name: value for name, value in conf.items() if not is_secret(name, value)})
    builder = SparkSession.builder
    for name, value in conf.items():
        builder = builder.config(name, fresh(value))
    spark: SparkSession = builder.getOrCreate()
    return spark


def close_session(spark: SparkSession) -> None:
    """Stop Spark, and the JVM if this process started it."""
    gateway = spark.sparkContext._gateway  # noqa: SLF001  # PySpark leaves its JVM to the end of the process
    spark.stop()
    _end(gateway)


def _end(gateway: Any) -> None:  # noqa: ANN401  # py4j's
    """End the JVM of `gateway`, if this process started it."""
    jvm: Popen[bytes] | None = getattr(gateway, "proc", None)
    if gateway is None or jvm is None:
        return
    gateway.shutdown()
    SparkContext._gateway = SparkContext._jvm = None  # noqa: SLF001  # or the next session would call a dead one
    if jvm.stdin is not None:
        jvm.stdin.close()  # this tells it to end
    try:
        jvm.wait(_JVM_SECONDS)
    except TimeoutExpired:
        jvm.kill()
        jvm.wait()


def _launch(conf: Mapping[str, str]) -> None:
    """Start the JVM, and drop the meaningless line from its stderr."""
    if SparkContext._gateway is not None:  # noqa: SLF001  # no public way to ask
        return
    spark_conf = SparkConf(loadDefaults=False).setAll(list(conf.items()))
    gateway = launch_gateway(spark_conf, {"stderr": PIPE})  # type: ignore[no-untyped-call]  # it has no types
    threading.Thread(target=_pass_on, args=(gateway.proc.stderr,), daemon=True).start()
    gateway.jvm = JavaClasses(gateway)
    SparkContext._ensure_initialized(gateway=gateway)  # noqa: SLF001  # what SparkContext itself calls


def _pass_on(stderr: IO[bytes]) -> None:
    with stderr:
        for line in worth_reporting(stderr):
            # Text of a record may be in it: no line of it begins as one of ours does.
            sys.stderr.write(f"Spark: {one_line(line.decode(errors='replace').rstrip())}\n")
            sys.stderr.flush()


def worth_reporting(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the lines of Spark's stderr that mean something."""
    block: list[bytes] = []  # a traceback: only its end shows whether it means anything
    is_open = False
    for line in lines:
        if line.startswith(_TRACEBACK) and not is_open:
            yield from _meant(block)  # another one begins
            block.clear()
        of_block = line.startswith(_CHAINED) or (bool(block) and line[:1].isspace())
        if of_block or (block and is_open):
            block.append(line)
            is_open = of_block
            continue
        yield from _meant(block)
        block.clear()
        if not line.startswith((_NOISE, *_GOODBYE)):
            yield line
    yield from _meant(block)


def _meant(block: list[bytes]) -> list[bytes]:
    """Return a traceback, unless it is a goodbye, or one that was cut off when Java ended."""
    frames = [line for line in block if not line.startswith(_CHAINED)]
    of_workers = any(name in line for line in frames for name in _DISMISSED)
    raised = [line for line in frames if not line[:1].isspace()]
    if not frames or (of_workers and all(line.startswith(_GOODBYE) for line in raised)):
        return []
    return block


ADMIN_SECONDS = 30.0


class JavaClasses(JVMView):  # type: ignore[misc]  # it has no types
    """
    PySpark's access to Java classes, with a cache.

    PySpark looks for the same eight classes in each batch. To find one by its short name, Java
    searches its some 300 jars for each package that could contain it.
    """

    def __init__(self, gateway: JavaGateway) -> None:
        # Based on the existing view: short names depend on the packages imported into it.
        found = gateway.jvm
        super().__init__(found._gateway_client, found._jvm_name, id=found._id)  # noqa: SLF001  # no public way to another view of the same

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401  # a class or a package
        found = super().__getattr__(name)
        self.__dict__[name] = found  # Python looks here first
        return found
