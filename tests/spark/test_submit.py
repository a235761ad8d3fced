"""Jobs by spark-submit, on a standalone cluster of two workers and with a checkpoint on S3."""

import shlex
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from dovecote.devstack.places import temporary_directory
from dovecote.devstack.spark.jars import s3_jars
from dovecote.devstack.spark.s3 import SECRET, S3Server
from dovecote.devstack.spark.standalone import SparkCluster, spark_home
from proof.spark.driver import ROOT, environment
from tests.spark.fix_spark import Job, MakeJob
from tests.support.documents import blocks
from tests.support.waiting import patient

PAGE = ROOT / "docs/spark-clusters.md"
KEY = "spark.hadoop.fs.s3a.secret.key"
JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
PLACE = {"spark.local.dir": "/dev/shm"} if Path("/dev/shm").is_dir() else {}  # noqa: S108  # Spark makes folders of its own there


@pytest.fixture(scope="module")
def spark_cluster() -> Iterator[SparkCluster]:
    """A master and two workers of this module's tests alone."""
    folder = temporary_directory(None)
    with SparkCluster(folder, env={"PYTHONPATH": str(ROOT)}, temporary=True) as running:
        yield running


@pytest.fixture(scope="module")
def s3() -> Iterator[S3Server]:
    folder = temporary_directory(None)
    with S3Server(folder / "s3", buckets=("checkpoints",), temporary=True) as running:
        yield running


def conf(s3: S3Server, **more: str) -> dict[str, str]:
    jars = f"{s3_jars()[0].parent}/*"
    return {
        **s3.spark(),
        "spark.executor.memory": "700m",
        "spark.executor.extraClassPath": jars,
        "spark.executor.extraJavaOptions": JAVA,
        **PLACE,
        **more,
    }


def file(job: Job, with_s3: Mapping[str, str], checkpoint: str) -> Path:
    """Write the job's settings, with a secret that the environment has."""
    path = job.with_(spark={"checkpoint": checkpoint, "conf": dict(with_s3)}).file()
    text, secret = path.read_text(), f'"{KEY}" = {{ env = "S3_SECRET" }}'
    path.write_text(text.replace('"conf" = {', f'"conf" = {{{secret}, ', 1).replace("PT1H", "1h"))
    return path


def submit(
    cluster: SparkCluster, *arguments: str, cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    jars = f"{s3_jars()[0].parent}/*"
    command = [str(spark_home() / "bin/spark-submit"), "--master", cluster.url]
    command += ["--conf", "spark.driver.host=127.0.0.1"]
    environ = {**environment(), "S3_SECRET": SECRET}
    if any("spark.pyspark.python" in each for each in arguments):
        # A user's shell has neither.
        del environ["PYSPARK_PYTHON"], environ["PYSPARK_DRIVER_PYTHON"]
    command += ["--conf", f"spark.driver.extraClassPath={jars}", "--driver-java-options", JAVA]
    return subprocess.run(
        [*command, *arguments],
        cwd=cwd,
        env=environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=patient(240),
        check=False,
    )


def packed(folder: Path) -> Path:
    """Return an archive with a Python in the place where a packed one has it, and unpack it."""
    script = folder / "python"
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    script.chmod(0o755)
    archive = folder / "environment.tar.gz"
    with tarfile.open(archive, "w:gz") as out:
        out.add(script, "bin/python")
    with tarfile.open(archive) as packed_:
        packed_.extractall(folder / "environment", filter="data")
    return archive


def documented(folder: Path, config: Path) -> list[str]:
    """Return the options of the documented command, with the files of this test."""
    (block,) = [each for each in blocks(PAGE, "sh") if "--archives" in each.text]
    words = shlex.split(block.text.partition("spark-submit")[2].replace("\\\n", " "))
    handlers = folder / "shop.zip"
    with zipfile.ZipFile(handlers, "w") as out:
        out.writestr("shop/__init__.py", "")
        out.writestr(
            "shop/orders.py",
            "from dedup import Done\n\n\ndef accept(event):\n    return Done()\n",
        )
    for option in ("--master", "--packages"):  # those of this test are beside it
        at = words.index(option)
        del words[at : at + 2]
    replaced = {
        "environment.tar.gz#environment": f"{packed(folder)}#environment",
        "shop.zip": str(handlers),
        "dedup_stream.py": str(ROOT / "spark_jobs/jobs/dedup_stream.py"),
        "orders.toml": str(config),
    }
    assert replaced.keys() <= {*words}
    return [replaced.get(word, word) for word in words]


@pytest.mark.slow
def test_the_documented_command_runs_with_a_packed_environment_and_s3(
    spark_cluster: SparkCluster, s3: S3Server, bare_job: MakeJob, tmp_path: Path
) -> None:
    job = bare_job(handler="shop.orders:accept")
    for n in range(300):
        job.send((f"k{n}", b"{}", [("ce_id", f"e{n}".encode())]))
    config = file(job, conf(s3), f"s3a://checkpoints/{job.settings.spark.query}")

    done = submit(spark_cluster, *documented(tmp_path, config), "--json", cwd=tmp_path)

    assert done.returncode == 0, done.stdout
    assert len(job.output()) == 300
    assert '"handled": 300' in done.stdout
    assert SECRET not in done.stdout
    # The driver's log without warnings: Spark's own level made 118 lines of each batch.
    assert len(done.stdout.splitlines()) < 60, done.stdout


@pytest.mark.slow
def test_a_check_tells_that_a_bucket_is_not_there(
    spark_cluster: SparkCluster, s3: S3Server, bare_job: MakeJob
) -> None:
    job = bare_job()
    config = file(job, conf(s3), "s3a://nowhere/orders")
    program = [str(ROOT / "spark_jobs/jobs/dedup_stream.py"), "--config", str(config)]

    checked = submit(spark_cluster, *program, "--check")

    said = "spark.checkpoint s3a://nowhere/orders cannot be used: there is no such bucket"
    assert checked.returncode == 1, checked.stdout
    assert f"FAIL  checkpoint: {said}" in checked.stdout
    assert "ok    topics" in checked.stdout
    assert "Traceback" not in checked.stdout


@pytest.mark.slow
def test_a_job_with_state_refuses_a_disk_that_executors_do_not_share(
    spark_cluster: SparkCluster, s3: S3Server, bare_job: MakeJob, tmp_path: Path
) -> None:
    job = bare_job(remember="1h")
    # Each process has a folder of its own there, as machines have.
    config = file(job, conf(s3), "/proc/self/cwd/checkpoint-of-a-test")
    program = [str(ROOT / "spark_jobs/jobs/dedup_stream.py"), "--config", str(config)]
    done = submit(spark_cluster, *program, cwd=tmp_path)

    assert done.returncode == 2, done.stdout
    (told,) = [line for line in done.stdout.splitlines() if line.startswith("dovecote: ")]
    assert "is on a disk that not all machines share: executors on" in told
    assert "Traceback" not in done.stdout
