"""`dovecote spark`: Spark jobs, on this machine or on a cluster."""

from typing import ClassVar

from dovecote.cli.commands import App, Lazy


class _Commands(Lazy):
    places: ClassVar = {
        "dedup": "jobs:dedup",
        "pairing": "jobs:pairing",
        "sessions": "jobs:sessions",
        "delay": "jobs:delay",
        "aggregate": "jobs:aggregate",
        "together": "jobs:together",
        "status": "status:status",
        "state": "state:state",
        "skip": "skip:skip",
    }


spark = App("spark", "Run Spark jobs, and look into running ones.", cls=_Commands)
