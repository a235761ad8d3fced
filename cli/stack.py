"""`dovecote stack`: a real Postgres and a real Kafka for development, without containers."""

import json
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Annotated

import typer

from outbox.errors import BadSettings

if TYPE_CHECKING:
    from devstack.detached import State

stack = typer.Typer(
    name="stack",
    help="Run a real Postgres and a real Kafka for development.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)

Directory = Annotated[
    Path | None,
    typer.Option(
        help="where the servers keep their data and this command what it started;"
        " default: .dovecote/stack"
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="one JSON line")]


def _detached() -> ModuleType:
    """Return what runs servers without a parent; it needs the extra `stack`."""
    try:
        from devstack import detached
    except ModuleNotFoundError as error:
        msg = f"the stack needs {error.name}: pip install './dovecote[stack]'"
        raise BadSettings(msg) from error
    return detached


@stack.command()
def up(directory: Directory = None, as_json: AsJson = False) -> None:
    """
    Start both servers, which go on when this command has ended.

    Example: dovecote stack up --directory /var/tmp/dovecote --json
    """
    detached = _detached()
    state, was_up = detached.up(directory)
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
    names = {"postgres": "dsn", "kafka": "bootstrap"}
    running = {name: member for name, member in state.members.items() if member.running}
    return {
        "running": state.running,
        "directory": str(state.directory),
        **{names[name]: member.address for name, member in running.items()},
        "pids": {name: member.server.pid for name, member in running.items()},
    }


def _show(state: "State") -> None:
    for name, member in state.members.items():
        told = f"{member.address} (pid {member.server.pid})" if member.running else "does not run"
        typer.echo(f"{name:9} {told}")
    typer.echo(f"directory {state.directory}")
