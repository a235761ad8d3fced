"""A flow for spark-submit: the same as `dovecote spark aggregate`, on a cluster."""

import os
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from dovecote.process.signals import beginning

if TYPE_CHECKING:
    from spark_jobs.jobs.submitting import Findings


def main(argv: Sequence[str] | None = None) -> int:
    """Run the flow; return its exit status: 0 done, 1 failed, 2 bad usage."""
    with beginning():
        from spark_jobs.jobs.flow import load_flow
        from spark_jobs.jobs.main import run_flow
        from spark_jobs.jobs.running import look
        from spark_jobs.jobs.submitting import options, submitted

    parser = options("aggregation_stream.py", "Run a flow from Kafka to Kafka.")
    parser.add_argument("--config", type=Path, required=True, help="see docs/aggregation.md")
    given = parser.parse_args(argv)

    def loaded() -> "tuple[Callable[[], None], Findings]":
        settings, jobs = load_flow(given.config, os.environ)
        # spark-submit has chosen the master.
        run = partial(
            run_flow, jobs, settings, master=None, json_lines=given.json, adopt=given.adopt
        )
        return run, partial(look, jobs)

    return submitted(given, loaded)


if __name__ == "__main__":
    # Python puts the folder of a script first: a handler's module `main` or `flow` would be ours.
    own = Path(__file__).resolve().parent
    sys.path[:] = [each for each in sys.path if Path(each).resolve() != own]
    sys.exit(main())
