"""Postgres and Kafka on this machine, for development and tests."""

from typing import TYPE_CHECKING

from outbox.lazily import lazy

if TYPE_CHECKING:
    from dovecote.devstack.kafka.cluster import Cluster
    from dovecote.devstack.postgres.pair import Pair
    from dovecote.devstack.spark.s3 import S3Server
    from dovecote.devstack.spark.standalone import SparkCluster
    from dovecote.devstack.stack import Stack

__all__ = [
    "Cluster",
    "Pair",
    "S3Server",
    "SparkCluster",
    "Stack",
]

if not TYPE_CHECKING:
    __getattr__ = lazy(
        __name__,
        {
            "Cluster": "dovecote.devstack.kafka.cluster",
            "Pair": "dovecote.devstack.postgres.pair",
            "S3Server": "dovecote.devstack.spark.s3",
            "SparkCluster": "dovecote.devstack.spark.standalone",
            "Stack": "dovecote.devstack.stack",
        },
        extra="stack",
    )
