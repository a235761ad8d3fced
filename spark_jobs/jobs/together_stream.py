"""Several jobs in one Spark for spark-submit: the same as `dovecote spark together`."""

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
    """Run the jobs; return their exit status: 0 done, 1 failed, 2 bad usage."""
    with beginning():
        from spark_jobs.jobs.files import check_all, load_all
        from spark_jobs.jobs.main import run_together
        from spark_jobs.jobs.submitting import options, submitted

    parser = options("together_stream.py", "Run several jobs in one Spark.")
    parser.add_argument("config", type=Path, nargs="+", help="TOML file; see docs/spark-dedup.md")
    given = parser.parse_args(argv)

    def loaded() -> "tuple[Callable[[], None], Findings]":
        jobs = load_all(given.config, environ=os.environ)
        # spark-submit has chosen the master.
        run = partial(run_together, jobs, master=None, json_lines=given.json, adopt=given.adopt)
        return run, partial(check_all, jobs)

    return submitted(given, loaded)


if __name__ == "__main__":
    # Python puts the folder of a script first: a handler's module `main` or `flow` would be ours.
    own = Path(__file__).resolve().parent
    sys.path[:] = [each for each in sys.path if Path(each).resolve() != own]
    sys.exit(main())
