"""
Disturb the relay, consumers or a Spark job for any length of time, then count: `make proof`.

Prints one JSON line. The exit status is 1 unless nothing was lost, doubled or out of order.
"""

import argparse
import json
import shutil
import sys
import tempfile
from pathlib import Path

from outbox.errors import DovecoteError
from proof.consumers import run as consumers
from proof.passwords import run as passwords
from proof.plan import Kind
from proof.run import Options, run
from proof.spark import run as spark


def main() -> None:
    parser = argparse.ArgumentParser(prog="proof", description=__doc__)
    parser.add_argument(
        "--seconds",
        type=float,
        default=600.0,
        help="how long to disturb; longer until each kind has come once",
    )
    parser.add_argument("--kills", type=int, help="end after this many kills of the active relay")
    parser.add_argument(
        "--seed", type=int, default=1, help="another seed gives other disturbances"
    )
    parser.add_argument("--capture", choices=("table", "wal", "switching"), default="table")
    parser.add_argument("--relays", type=int, default=3, help="one is active, the others stand by")
    parser.add_argument("--writers", type=int, default=3)
    parser.add_argument(
        "--pace", type=float, default=0.01, help="seconds between two transactions"
    )
    parser.add_argument("--brokers", type=int, choices=(1, 3), default=1)
    parser.add_argument(
        "--mode", choices=("exactly_once", "at_least_once"), default="exactly_once"
    )
    parser.add_argument(
        "--without",
        action="append",
        choices=[*Kind],
        default=[],
        help="leave out this disturbance",
    )
    parser.add_argument(
        "--only", action="append", choices=[*Kind], default=[], help="only these disturbances"
    )
    parser.add_argument(
        "--audit", action="store_true", help="run an auditor beside, which is killed as well"
    )
    parser.add_argument("--consumers", action="store_true", help="prove consumers instead")
    parser.add_argument(
        "--passwords",
        action="store_true",
        help="change passwords of Postgres under every part instead",
    )
    parser.add_argument(
        "--every", type=float, default=20.0, help="with --passwords: seconds between two changes"
    )
    jobs = parser.add_argument_group("Spark jobs", "on a standalone cluster, with S3")
    jobs.add_argument(
        "--spark",
        action="append",
        choices=("dedup", "remember", "sessions"),
        help="prove this job; several run in one Spark",
    )
    jobs.add_argument("--executors", type=int, default=2, help="of one core each")
    jobs.add_argument("--rows", type=int, default=3_000, help="before each kill")
    jobs.add_argument("--batch", type=int, default=1_500, help="the most rows of a batch")
    jobs.add_argument("--abortable", action="store_true", help="the file manager for S3")
    args = parser.parse_args()
    directory = Path(tempfile.mkdtemp(prefix="dovecote-proof-"))
    if args.consumers:
        _prove_consumers(directory, args.seconds, args.seed)
        return
    if args.passwords:
        _prove_passwords(directory, args.seconds, args.every)
        return
    if args.spark:
        _prove_spark(directory, args)
        return
    options = Options(
        directory=directory,
        seconds=args.seconds,
        kills=args.kills,
        seed=args.seed,
        capture=args.capture,
        mode=args.mode,
        brokers=args.brokers,
        without=tuple(
            kind for kind in Kind if kind in args.without or (args.only and kind not in args.only)
        ),
        relays=args.relays,
        writers=args.writers,
        pace=args.pace,
        audit=args.audit,
    )
    try:
        outcome = run(options, _show)
    except DovecoteError as error:
        sys.exit(
            f"proof: seed {args.seed}, capture {args.capture}, {args.brokers} broker(s): {error}\n"
            f"The relays' logs are in {directory}"
        )
    chosen = {name: getattr(args, name) for name in ("capture", "mode", "brokers", "seed")}
    print(json.dumps({"proof": "relay", **chosen, **outcome.fields()}), flush=True)
    if outcome.audited is not None and outcome.audited.findings:
        sys.exit(
            f"proof: the auditor found {len(outcome.audited.findings)} faults with seed "
            f"{args.seed}; its state and the logs are in {directory}"
        )
    if not outcome.verdict.is_well:
        sys.exit(
            f"proof: the relay broke its word with seed {args.seed}; its logs are in {directory}\n"
            f"{outcome.explained}"
        )
    shutil.rmtree(directory)


def _prove_consumers(directory: Path, seconds: float, seed: int) -> None:
    options = consumers.Options(directory=directory, seconds=seconds, seed=seed)
    try:
        outcome = consumers.run(options, _show)
    except DovecoteError as error:
        sys.exit(f"proof: {error}\nThe consumers' logs are in {directory}")
    print(json.dumps({"proof": "consumers", "seed": seed, **outcome.fields()}), flush=True)
    if not outcome.verdict.is_well:
        sys.exit(f"proof: the consumers broke their word; their logs are in {directory}")
    shutil.rmtree(directory)


def _prove_passwords(directory: Path, seconds: float, every: float) -> None:
    options = passwords.Options(directory=directory, seconds=seconds, every=every)
    try:
        outcome = passwords.run(options, _show)
    except DovecoteError as error:
        sys.exit(f"proof: {error}\nThe logs of the parts are in {directory}")
    print(json.dumps({"proof": "passwords", **outcome.fields()}), flush=True)
    if not outcome.is_well:
        sys.exit(f"proof: a changed password did harm; the logs of the parts are in {directory}")
    shutil.rmtree(directory)


def _prove_spark(directory: Path, args: argparse.Namespace) -> None:
    names = ("seed", "executors", "rows", "batch", "abortable")
    chosen = {name: getattr(args, name) for name in names}
    kills = 20 if args.kills is None else args.kills
    options = spark.Options(
        directory=directory,
        jobs=tuple(dict.fromkeys(args.spark)),
        kills=kills,
        seconds=args.seconds,
        **chosen,
    )
    try:
        outcome = spark.run(options, _show)
    except DovecoteError as error:
        sys.exit(f"proof: {error}\nThe logs are in {directory}")
    told = {"proof": "spark", **chosen, **outcome.fields()}
    print(json.dumps(told), flush=True)
    if not outcome.is_well:
        sys.exit(f"proof: the job broke its word; its logs are in {directory}")
    shutil.rmtree(directory)


def _show(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
