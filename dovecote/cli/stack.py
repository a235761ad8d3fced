"""`dovecote stack`: a real Postgres and a real Kafka for development, without containers."""

import json
from enum import StrEnum
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Annotated

import typer

from outbox.errors import BadSettings

if TYPE_CHECKING:
    from dovecote.devstack.detached import State

stack = typer.Typer(
    name="stack",
    help="Run a real Postgres and a real Kafka for development.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)


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

Directory = Annotated[
    Path | None,
    typer.Option(
        help="where the servers keep their data and this command what it started;"
        " default: .dovecote/stack"
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="one JSON line")]


def _detached(name: str = "detached") -> ModuleType:
    """Return what runs servers without a parent; it needs the extra `stack`."""
    try:
        return import_module(f"dovecote.devstack.{name}")
    except ModuleNotFoundError as error:
        msg = f"the stack needs {error.name}: pip install './dovecote[stack]'"
        raise BadSettings(msg) from error


@stack.command()
def up(
    directory: Directory = None,
    as_json: AsJson = False,
    brokers: Annotated[
        int | None,
        typer.Option(help="1, or 3 that replicate, with gates between them; default: as before"),
    ] = None,
) -> None:
    """
    Start both servers, which go on when this command has ended.

    Example: dovecote stack up --directory /var/tmp/dovecote --json
    """
    detached = _detached()
    state, was_up = detached.up(directory, brokers=brokers)
    if as_json:
        typer.echo(json.dumps(_told(state)))
        return
    typer.echo("Postgres and Kafka run already" if was_up else "Postgres and Kafka are up")
    _show(state)


@stack.command()
def down(directory: Directory = None) -> None:
    """
    Stop what `up` started, and nothing else; the data stays.

    Example: dovecote stack down
    """
    detached = _detached()
    stopped = detached.down(directory)
    typer.echo("Postgres and Kafka are down" if stopped else "nothing was running")


@stack.command()
def isolate(
    broker: Annotated[int, typer.Argument(help="its number, from 1")],
    directory: Directory = None,
    cut_from: Annotated[
        CutFrom, typer.Option("--from", help="from whom it is cut off")
    ] = CutFrom.PEERS,
    reset: Annotated[
        bool, typer.Option("--reset", help="break connections, instead of holding back silently")
    ] = False,
) -> None:
    """
    Cut one of three brokers off, without stopping it, until `heal`.

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
def heal(directory: Directory = None) -> None:
    """
    Undo `isolate`; what was held back arrives.

    Example: dovecote stack heal
    """
    _detached("cutting").heal(directory)
    typer.echo("no broker is cut off")


@stack.command()
def status(directory: Directory = None, as_json: AsJson = False) -> None:
    """
    Tell whether both servers run, and where; exit status 1 if not.

    Example: dovecote stack status --json
    """
    detached = _detached()
    state = detached.status(directory)
    if as_json:
        typer.echo(json.dumps(_told(state)))
    elif state is None:
        typer.echo("nothing was started here; try: dovecote stack up")
    else:
        _show(state)
    raise typer.Exit(0 if state is not None and state.running else 1)


def _told(state: "State | None") -> dict[str, object]:
    if state is None:
        return {"running": False}
    running = {name: member for name, member in state.members.items() if member.running}
    brokers = [each.address for name, each in running.items() if name.startswith("kafka")]
    return {
        "running": state.running,
        "directory": str(state.directory),
        **({"dsn": state.dsn} if "postgres" in running else {}),
        **({"bootstrap": ",".join(brokers)} if brokers else {}),
        "pids": {name: member.server.pid for name, member in running.items()},
    }


def _show(state: "State") -> None:
    for name, member in state.members.items():
        told = f"{member.address} (pid {member.server.pid})" if member.running else "does not run"
        typer.echo(f"{name:9} {told}")
    typer.echo(f"directory {state.directory}")
