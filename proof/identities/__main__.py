"""
Run every part on a broker that wants tokens, and count: `python -m proof.identities`.

It prints one JSON line. The exit status is 1 if an event was lost, or doubled by relay or Spark.
"""

import argparse
import json
import shutil
import sys
import tempfile
from pathlib import Path

from outbox.errors import DovecoteError
from proof.identities.run import Options, explained, run


def main() -> None:
    """Run it as the command line says."""
    parser = argparse.ArgumentParser(prog="proof.identities", description=__doc__)
    parser.add_argument("--minutes", type=float, default=5.0, help="how long events are written")
    parser.add_argument("--life", type=float, default=60.0, help="seconds that a token lives")
    parser.add_argument(
        "--failing", type=float, default=0.0, help="lives for which the provider fails"
    )
    parser.add_argument("--without-spark", action="store_true")
    args = parser.parse_args()
    directory = Path(tempfile.mkdtemp(prefix="dovecote-identities-"))
    options = Options(
        directory=directory,
        seconds=60 * args.minutes,
        life=args.life,
        failing=args.failing,
        spark=not args.without_spark,
    )
    try:
        outcome = run(options, _show)
    except DovecoteError as error:
        sys.exit(explained(error, directory))
    print(json.dumps({"proof": "identities", **vars(args), **outcome.fields()}), flush=True)  # noqa: T201  # its result
    if not outcome.is_well:
        sys.exit(f"proof: events were lost or doubled; the logs of the parts are in {directory}")
    shutil.rmtree(directory)


def _show(text: str) -> None:
    sys.stderr.write(f"{text}\n")


if __name__ == "__main__":
    main()
