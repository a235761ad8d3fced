"""Python imports this where a process starts: states of jobs are stored in parts early."""

from spark_jobs.stateful import parts

parts.SMALL = 300
