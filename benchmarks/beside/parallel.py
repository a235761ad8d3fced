"""The jars of Confluent's Parallel Consumer, with its module for Vert.x."""

from benchmarks.beside.tools import CHECKSUMS, dependencies
from dovecote.devstack.kafka.jars import JarSet

VERSION = "0.5.3.3"

JARS = JarSet(
    f"parallel-consumer-{VERSION}",
    dependencies(
        ("io.confluent.parallelconsumer", "parallel-consumer-vertx", VERSION),
        ("org.slf4j", "slf4j-nop", "1.7.36"),
    ),
    CHECKSUMS / f"parallel-consumer-{VERSION}.sha256",
)
