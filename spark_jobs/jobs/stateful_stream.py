"""The stateful jobs for spark-submit: the same as `dovecote spark pairing`, on a cluster."""

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
    """Run the job; return its exit status: 0 done, 1 failed, 2 bad usage."""
    with beginning():
        from dovecote.process.settings.loading import load
        from spark_jobs.jobs.files import check_stateful
        from spark_jobs.jobs.main import run_stateful
        from spark_jobs.jobs.submitting import options, submitted
        from spark_jobs.query.settings import PREFIX
        from spark_jobs.stateful.settings import JOBS

    parser = options("stateful_stream.py", "Run a stateful operator from Kafka to Kafka.")
    parser.add_argument("job", choices=sorted(JOBS))
    parser.add_argument("--config", type=Path, help="TOML file; see docs/spark-operators.md")
    given = parser.parse_args(argv)

    def loaded() -> "tuple[Callable[[], None], Findings]":
        settings = load(JOBS[given.job], given.config, prefix=PREFIX, environ=os.environ)
        # spark-submit has chosen the master.
        run = partial(
            run_stateful, settings, master=None, json_lines=given.json, adopt=given.adopt
        )
        return run, partial(check_stateful, settings)

    return submitted(given, loaded)


if __name__ == "__main__":
    # Python puts the folder of a script first: a handler's module `main` or `flow` would be ours.
    own = Path(__file__).resolve().parent
    sys.path[:] = [each for each in sys.path if Path(each).resolve() != own]
    sys.exit(main())
