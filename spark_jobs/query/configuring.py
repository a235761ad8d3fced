"""Decide with which configuration of Spark a job runs."""

import os
import re
from collections.abc import Mapping
from pathlib import Path

from spark_jobs.checkpoint.damage import local
from spark_jobs.query.conf import FORCED
from spark_jobs.query.settings import SparkSettings

_LOCAL_CHECKPOINTS = (
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
)
_JARS, _NAME = "spark.jars", "spark.app.name"
_JAVA_DEFAULTS = "spark.driver.defaultJavaOptions"
_COMPILING = re.compile(r"-XX:[+-]?Tier|-Xint\b|-Xcomp\b")
_JAVA_OPTIONS = {
    # Batches are short-lived garbage; a concurrent collector would take their processors.
    "-XX:+UseParallelGC": re.compile(r"-XX:\+Use\w*GC\b"),
    # Apart from the rows, Java runs much code for each batch, but little of it often. Compiling
    # that as if it ran often takes an idle job, for minutes, as long as running it. So these are
    # ten times Java's own thresholds; the code for rows exceeds them within a batch.
    "-XX:Tier4InvocationThreshold=50000": _COMPILING,
    "-XX:Tier4MinInvocationThreshold=6000": _COMPILING,
    "-XX:Tier4CompileThreshold=150000": _COMPILING,
}
"""The options for a local Java, unless somebody chose another of the same kind."""

_BEFORE_JAVA = re.compile(
    r"spark\.(jars(\.packages|\.repositories|\.excludes|\.ivy\w*)?$|submit\."
    r"|driver\.(memory|cores|extra|default)|archives$|files$|yarn\.dist|kubernetes\.)"
)
"""Properties that spark-submit has used when a job's settings are read."""


def configuration(
    settings: SparkSettings, *, master: str | None, given: Mapping[str, str] | None = None
) -> dict[str, str]:
    """
    Return the Spark configuration of a job: defaults, the settings' own, then what must be.

    `given` is what spark-submit or the cluster says. None of our defaults overrides it.
    """
    given = given or {}
    conf = {
        _NAME: f"dovecote {settings.query}",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        # The source's option `kafka` has passwords, which must not appear in plans and logs.
        "spark.sql.redaction.options.regex": "(?i)url|password|^kafka$",
        # Spark's own expression lacks Azure's.
        "spark.redaction.regex": "(?i)secret|password|token|access[.]?key|account[.]key|[.]sas[.]",
    }
    if master is not None:
        conf["spark.master"] = master
    if _is_here(master):
        conf |= _local()
    else:
        # Spark's own level costs a gigabyte a day, for batches that say the same each second.
        conf |= {"spark.log.level": "WARN", "spark.executor.syncLogLevel.enabled": "true"}
    if local(settings.checkpoint) is not None:
        # Otherwise each file of the checkpoint forks a process. This needs a file system with
        # rename.
        conf["spark.sql.streaming.checkpointFileManagerClass"] = _LOCAL_CHECKPOINTS
    conf = {name: value for name, value in conf.items() if not _is_given(name, given)}
    conf |= settings.conf
    if jars := _jars(given.get(_JARS, ""), settings.conf.get(_JARS, "")):
        conf[_JARS] = jars
    if _is_here(master):
        chosen = _java_options(conf)
        ours = [option for option, kind in _JAVA_OPTIONS.items() if not kind.search(chosen)]
        conf[_JAVA_DEFAULTS] = " ".join([conf.get(_JAVA_DEFAULTS, ""), *ours]).strip()
    # When a batch is run again, the same rows must meet in the same shuffle partition.
    conf["spark.sql.shuffle.partitions"] = str(settings.shuffle_partitions)
    return conf | {name: value for name, (value, _) in FORCED.items()}


def _is_here(master: str | None) -> bool:
    """Return whether Spark runs on this machine, in one process or as a `local-cluster`."""
    return master is not None and master.startswith("local")


def remarks(settings: SparkSettings, given: Mapping[str, str]) -> list[str]:
    """Return what a job's settings change of what spark-submit says, and where they come late."""
    if not given:  # nobody has started Java for us
        return []
    found = []
    for name, value in sorted(settings.conf.items()):
        if _BEFORE_JAVA.match(name):
            told = f"{name} in [spark.conf] comes too late for the driver: give it to spark-submit"
            if given.get(name) != value:
                found.append(told)
        elif name in given and given[name] != value:
            found.append(f"{name} in [spark.conf] overrides what spark-submit or the cluster says")
    must = {name: value for name, (value, _) in FORCED.items()}
    must["spark.sql.shuffle.partitions"] = str(settings.shuffle_partitions)
    for name, value in must.items():
        if name in given and given[name] != value:
            found.append(f"{name} is {value}, and not {given[name]}: it is the same in every job")
    return found


def _is_given(name: str, given: Mapping[str, str]) -> bool:
    # Without --name, spark-submit takes the name of the file.
    return name in given and not (name == _NAME and given[name].endswith(".py"))


def _jars(*lists: str) -> str:
    """Return the jars of several lists, each once."""
    return ",".join(dict.fromkeys(jar for each in lists for jar in each.split(",") if jar))


def _local() -> dict[str, str]:
    log = Path(__file__).with_name("log4j2.properties")
    return {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={log.as_uri()}",
        # Rows go to Python and back, and are on this machine's disk only for moments.
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.shuffle.compress": "false",
    }


def _java_options(conf: Mapping[str, str]) -> str:
    """Return the Java options from elsewhere: with two garbage collectors, Java ends at once."""
    given = [conf.get(_JAVA_DEFAULTS, ""), conf.get("spark.driver.extraJavaOptions", "")]
    given += [os.environ.get(name, "") for name in ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS")]
    return " ".join(given)
