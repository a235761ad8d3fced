"""Fixtures of the Spark jobs' tests."""

from tests.spark.fix_spark import bare_job, job, spark
from tests.spark.fix_stateful import stateful

__all__ = ["bare_job", "job", "spark", "stateful"]
