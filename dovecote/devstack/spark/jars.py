"""The jars with which Spark reaches S3: `python -m dovecote.devstack.spark.jars` fetches them."""

import sys
from pathlib import Path

from dovecote.devstack.errors import StackError
from dovecote.devstack.kafka.jars import JarSet, fetch
from dovecote.devstack.progress import Progress, shown
from dovecote.process.signals import INTERRUPTED

_SDK = "2.57.8"
_HADOOP = "3.5.0"
"""The version of Hadoop that PySpark 4.2.0 carries."""
_CLOUD = "4.1.1"
_MODULES = ("s3", "s3-transfer-manager", "sts", "apache-client", "netty-nio-client")


# Spark has these in versions of its own.
_SPARKS = ("io.netty", "org.slf4j", "commons-codec", "commons-logging")


def _module(name: str) -> str:
    return f"""\
    <dependency org="software.amazon.awssdk" name="{name}" rev="{_SDK}" conf="default"/>
"""


def _exclude(organisation: str) -> str:
    return f'    <exclude org="{organisation}"/>\n'


S3_JARS = JarSet(
    f"hadoop-aws-{_HADOOP}",
    # Hadoop asks for Amazon's bundle, 686 MB with all of its services. These are the modules that
    # its S3 needs, and what Spark adds for object stores.
    f"""\
    <dependency org="org.apache.hadoop" name="hadoop-aws" rev="{_HADOOP}"
                conf="default" transitive="false"/>
    <dependency org="org.apache.spark" name="spark-hadoop-cloud_2.13" rev="{_CLOUD}" conf="default"
                transitive="false"/>
    <dependency org="software.amazon.s3.analyticsaccelerator" name="analyticsaccelerator-s3"
                rev="1.3.1" conf="default" transitive="false"/>
{"".join(map(_module, _MODULES))}{"".join(map(_exclude, _SPARKS))}""",
    Path(__file__).with_name("s3.sha256"),
)


def s3_jars(progress: Progress | None = None) -> list[Path]:
    """Return the jars, fetched if needed as `fetch` does."""
    return sorted(fetch(S3_JARS, progress).glob("*.jar"))


def main() -> int:
    """Fetch the jars; return the exit status."""
    try:
        with shown() as progress:
            found = s3_jars(progress)
    except StackError as error:
        sys.stderr.write(f"dovecote: {error}\n")
        return 1
    except KeyboardInterrupt:
        return INTERRUPTED
    sys.stdout.write(f"{found[0].parent}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
