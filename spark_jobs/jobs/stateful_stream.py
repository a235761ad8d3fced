"""The stateful jobs for spark-submit: the same as `dovecote spark pairing`, on a cluster."""

import argparse
import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from dovecote.process.settings import load
from outbox.errors import BadSettings, DovecoteError
from spark_jobs.jobs.main import run_stateful
from spark_jobs.query.settings import PREFIX
from spark_jobs.stateful.settings import JOBS


def main(argv: Sequence[str] | None = None) -> int:
    """Run the job; return its exit status: 0 done, 1 failed, 2 bad usage."""
    parser = argparse.ArgumentParser(
        prog="stateful_stream.py", description="Run a stateful operator from Kafka to Kafka."
    )
    parser.add_argument("job", choices=sorted(JOBS))
    parser.add_argument("--config", type=Path, help="TOML file; see docs/spark-operators.md")
    parser.add_argument("--adopt", action="store_true", help="take over another query's markers")
    parser.add_argument("--json", action="store_true", help="one JSON line per batch on stdout")
    given = parser.parse_args(argv)
    logging.basicConfig(level=logging.INFO, stream=sys.stderr)
    logging.getLogger("py4j").setLevel(logging.CRITICAL)  # the job reports the same errors
    try:
        settings = load(JOBS[given.job], given.config, prefix=PREFIX, environ=os.environ)
        # spark-submit has chosen the master.
        run_stateful(settings, master=None, json_lines=given.json, adopt=given.adopt)
    except DovecoteError as error:
        sys.stderr.write(f"dovecote: {error}\n")
        return 2 if isinstance(error, BadSettings) else 1
    return 0


if __name__ == "__main__":
    # Python puts the folder of a script first: a handler's module `main` or `flow` would be ours.
    own = Path(__file__).resolve().parent
    sys.path[:] = [each for each in sys.path if Path(each).resolve() != own]
    sys.exit(main())
