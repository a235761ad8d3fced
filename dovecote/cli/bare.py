"""`dovecote` where typer is not installed: `dovecote init`, and what to install for the rest."""

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.metadata import version

from dovecote.cli import flags
from dovecote.cli.extras import EXTRAS
from dovecote.cli.init import PARTS
from outbox.errors import BadSettings
from outbox.lazily import advice

_HELP = """\
Usage: dovecote init outbox|inbox|push [OPTIONS]

Install or upgrade what Dovecote needs in Postgres. `dovecote init outbox --help` shows the
options.

These commands need more packages:"""


def app(words: Sequence[str] | None = None) -> None:
    """
    Run a command.

    Raises:
        BadSettings: it needs an extra, or there is no such command.
    """
    words = sys.argv[1:] if words is None else words
    match words:
        case ["--version"]:
            sys.stdout.write(f"dovecote {version('dovecote')}\n")
        case ["init", part, *rest] if part in PARTS:
            module, _, name = PARTS[part].partition(":")
            function = getattr(import_module(f"dovecote.cli.init.{module}"), name)
            flags.run(function, f"dovecote init {part}", rest)
        case ["-h" | "--help", *_] | ["init", "-h" | "--help", *_]:
            sys.stdout.write(_help())
        case [] | ["init"]:
            sys.stdout.write(_help())
            sys.exit(2)
        case [name, *_] if extra := EXTRAS.get(name):
            raise BadSettings(advice(["typer"], extra, f"dovecote {name}"))
        case _:
            msg = f"no such command: {' '.join(words)[:200]!r}; see `dovecote --help`"
            raise BadSettings(msg)


def _help() -> str:
    named = [(name, extra) for name, extra in EXTRAS.items() if extra]
    rows = [f"  dovecote {name:<9} pip install 'dovecote[{extra}]'" for name, extra in named]
    return "\n".join([_HELP, *rows, ""])
