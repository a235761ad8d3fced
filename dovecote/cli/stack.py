"""`dovecote stack`: a real Postgres and a real Kafka for development, without containers."""

import json
import os
import shlex
import sys
from enum import StrEnum
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Annotated

import typer

from dovecote.cli.commands import App
from dovecote.cli.extras import needs
from dovecote.cli.options import JsonOption, one_of

if TYPE_CHECKING:
    from dovecote.devstack.detached import StackState

stack = App("stack", "Run a real Postgres and Kafka for development.")


class CutFrom(StrEnum):
    """Whom a broker is cut off from."""

    PEERS = "peers"
    CLIENTS = "clients"
    BOTH = "both"


_CUT = {
    CutFrom.PEERS: "the other brokers",
    CutFrom.CLIENTS: "its clients",
    CutFrom.BOTH: "the other brokers and its clients",
}

# With these, libpq goes to another server than the one whose address it gets, or refuses it.
_ELSEWHERE = (
    *("PGHOSTADDR", "PGSERVICE", "PGSERVICEFILE", "PGTARGETSESSIONATTRS"),
    *("PGSSLMODE", "PGSSLNEGOTIATION", "PGSSLROOTCERT", "PGREQUIRESSL", "PGGSSENCMODE"),
    *("PGCHANNELBINDING", "PGREQUIREAUTH", "PGREQUIREPEER"),
)

DirectoryOption = Annotated[
    Path | None,
    typer.Option(
        "--directory",
        metavar="FOLDER",
        help="The folder of the servers' data; by default .dovecote/stack.",
    ),
]


def _detached(name: str = "detached") -> ModuleType:
    """Return what runs servers without a parent; it needs the extra `stack`."""
    with needs("stack", user="the stack"):
        return import_module(f"dovecote.devstack.{name}")


def _forget_others() -> list[str]:
    """Unset the variables that lead libpq to another server; return their names."""
    return [name for name in _ELSEWHERE if os.environ.pop(name, None) is not None]


@stack.command()
def up(
    *,
    directory: DirectoryOption = None,
    as_json: JsonOption = False,
    brokers: Annotated[
        int | None,
        typer.Option(
            metavar="N", help="Start 1, or 3 that replicate, with gates; by default as before."
        ),
    ] = None,
    postgres: Annotated[
        str | None,
        typer.Option(metavar="VERSION", help="Such as 15; by default as before, or 18."),
    ] = None,
    kafka: Annotated[
        str | None,
        typer.Option(metavar="VERSION", help="Such as 3.9; by default as before, or 4.2."),
    ] = None,
    spark: Annotated[
        bool,
        typer.Option("--spark", help="Start a standalone cluster of Spark, too: two workers."),
    ] = False,
    s3: Annotated[
        bool, typer.Option("--s3", help="Start an S3 for checkpoints, too, in memory.")
    ] = False,
) -> None:
    """
    Start both servers.

    They go on running after this command has ended.

    Example: dovecote stack up --directory /var/tmp/dovecote --postgres 15 --kafka 3.9
    """
    detached = _detached()
    asked = {detached.SPARK: spark, detached.S3_SERVER: s3}
    more = [name for name, is_asked in asked.items() if is_asked]
    _forget_others()
    state, was_up = detached.up(
        directory, brokers=brokers, postgres=postgres, kafka=kafka, more=more
    )
    if as_json:
        typer.echo(json.dumps(_fields(state)))
        return
    typer.echo("Postgres and Kafka run already" if was_up else "Postgres and Kafka are up")
    _show(state)


@stack.command()
def down(directory: DirectoryOption = None) -> None:
    """
    Stop the servers that `up` started.

    It stops nothing else, and the data stays.

    Example: dovecote stack down
    """
    detached = _detached()
    stopped = detached.down(directory)
    typer.echo("Postgres and Kafka are down" if stopped else "nothing was running")


@stack.command()
def isolate(
    broker: Annotated[int, typer.Argument(metavar="N", help="The number of the broker, from 1.")],
    directory: DirectoryOption = None,
    cut_from: Annotated[
        CutFrom,
        typer.Option("--from", metavar=one_of(CutFrom), help="The side it is cut off from."),
    ] = CutFrom.PEERS,
    reset: Annotated[
        bool, typer.Option("--reset", help="Reset connections, instead of holding data back.")
    ] = False,
) -> None:
    """
    Cut one of three brokers off, until `heal`.

    The broker goes on running.

    Example: dovecote stack isolate 2 --from peers
    """
    _detached("cutting").isolate(
        directory,
        broker,
        from_peers=cut_from is not CutFrom.CLIENTS,
        from_clients=cut_from is not CutFrom.PEERS,
        reset=reset,
    )
    typer.echo(f"broker {broker} is cut off from {_CUT[cut_from]}; undo it: dovecote stack heal")


@stack.command()
def heal(directory: DirectoryOption = None) -> None:
    """
    Undo `isolate`: data that was held back arrives.

    Example: dovecote stack heal
    """
    _detached("cutting").heal(directory)
    typer.echo("no broker is cut off")


@stack.command()
def status(directory: DirectoryOption = None, as_json: JsonOption = False) -> None:
    """
    Show whether both servers run, and where.

    The exit status is 1 if one of them does not run.

    Example: dovecote stack status --json
    """
    detached = _detached()
    state = detached.status(directory)
    if as_json:
        typer.echo(json.dumps(_fields(state)))
    elif state is None:
        typer.echo("nothing was started here; try: dovecote stack up")
    else:
        _show(state)
    raise typer.Exit(0 if state is not None and state.running else 1)


@stack.command()
def env(directory: DirectoryOption = None, as_json: JsonOption = False) -> None:
    """
    Print its addresses as variables of a shell.

    The names are those of libpq, and those of the settings of each part.

    Example: eval "$(dovecote stack env)"
    """
    variables = _running(directory).variables()
    if as_json:
        typer.echo(json.dumps(variables))
        return
    for name in _forget_others():
        typer.echo(f"unset {name}")
    for name, value in variables.items():
        typer.echo(f"export {name}={shlex.quote(value)}")


@stack.command(context_settings={"ignore_unknown_options": True})
def psql(
    arguments: Annotated[
        list[str] | None,
        typer.Argument(metavar="ARGUMENT", help="Arguments of psql.", show_default=False),
    ] = None,
    directory: DirectoryOption = None,
) -> None:
    """
    Open psql in its database.

    Options of psql come after `--`.

    Example: dovecote stack psql -- -c "SELECT count(*) FROM outbox.events"
    """
    state = _running(directory)
    program = str(_detached("postgres.programs").client("psql"))
    _forget_others()
    sys.stdout.flush()
    os.execve(program, [program, *(arguments or ())], {**os.environ, **state.variables()})  # noqa: S606  # psql itself


def _running(directory: Path | None) -> "StackState":
    """
    Return the stack, which must run.

    Raises:
        StackError: it does not.
    """
    state: StackState | None = _detached().status(directory)
    if state is None or not state.running:
        msg = "the stack does not run here; try: dovecote stack up"
        raise _detached("errors").StackError(msg)
    return state


def _fields(state: "StackState | None") -> dict[str, object]:
    if state is None:
        return {"running": False}
    running = {name: member for name, member in state.members.items() if member.running}
    brokers = [each.address for name, each in running.items() if name.startswith("kafka")]
    return {
        "running": state.running,
        "directory": str(state.directory),
        **({"dsn": state.dsn} if "postgres" in running else {}),
        **({"bootstrap": ",".join(brokers)} if brokers else {}),
        "versions": {name: each.version for name, each in running.items() if each.version},
        **{
            field: running[name].address
            for field, name in (("spark", "spark-master"), ("s3", "s3"))
            if name in running
        },
        "pids": {name: member.server.pid for name, member in running.items()},
    }


def _show(state: "StackState") -> None:
    for name, member in state.members.items():
        told = f"{member.address} (pid {member.server.pid})" if member.running else "does not run"
        label = f"{name} {member.version}".rstrip()
        typer.echo(f"{label:14} {told}")
    typer.echo(f"{'directory':14} {state.directory}")
