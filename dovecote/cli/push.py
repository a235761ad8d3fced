"""`dovecote push`: deliver Kafka to HTTP endpoints, and tell such a process what to deliver."""

import json
import os
import secrets
import signal
import sys
import threading
import tomllib
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import typer

from dovecote.cli import printed
from dovecote.cli.push_client import Api, position
from dovecote.process.logs import LogFormat, configure
from dovecote.process.settings import load
from outbox.errors import BadSettings

push = typer.Typer(
    name="push",
    help="Deliver Kafka to HTTP endpoints: in order per key, signed, durable.",
    invoke_without_command=True,
    add_completion=False,
    rich_markup_mode=None,
)

# Beyond what requests at work are given: to commit, and to leave groups.
_LONGEST_END = 40.0

Url = Annotated[
    str, typer.Option("--api", envvar="DOVECOTE_API", help="where `dovecote push` serves its API")
]
Token = Annotated[
    str | None,
    typer.Option("--token-file", help="file with the token; or DOVECOTE_API_TOKEN"),
]
Id = Annotated[str, typer.Argument(metavar="ID", show_default=False)]
AsJson = Annotated[bool, typer.Option("--json", help="JSON")]

_HERE = "http://127.0.0.1:8080"

_NEEDED = ("fastapi", "uvicorn", "cryptography", "httptools", "uvloop")


@push.callback()
def run(
    context: typer.Context,
    *,
    config: Annotated[
        Path | None, typer.Option("--config", "-c", help="TOML file; see docs/push-api.md")
    ] = None,
    check: Annotated[bool, typer.Option("--check", help="validate the settings and exit")] = False,
    log_format: Annotated[LogFormat, typer.Option(help="text or json")] = LogFormat.TEXT,
) -> None:
    """
    Deliver records to the endpoints of subscriptions, and serve the API and a page for both.

    Start as many as you like with one database: they share the work. SIGTERM ends it gracefully.

    Example: dovecote push --config push.toml

    Every setting is also a variable: DOVECOTE_PUSH_DSN, DOVECOTE_PUSH_HTTP__PORT,
    DOVECOTE_PUSH_BROKERS__DEFAULT__BOOTSTRAP_SERVERS.
    """
    if context.invoked_subcommand is not None:
        return
    _require_push()
    # The web server and the HTTP client are not loaded for other commands.
    from dovecote.process.memory import relax, take_turns
    from dovecote.push.process import engine, running
    from dovecote.push.settings import PREFIX, PushSettings
    from dovecote.push.store.secrets import Keys

    settings = load(PushSettings, config, prefix=PREFIX, environ=os.environ)
    Keys(settings.secrets.keys)
    if check:
        typer.echo(f"settings are valid: brokers {', '.join(sorted(settings.brokers))}")
        return
    log = configure(log_format)
    ending = threading.Event()

    def end(*_: object) -> None:
        ending.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)
    with running(settings, engine(settings)) as found:
        # A look at all that is loaded by now would keep every delivery waiting.
        relax()
        take_turns()
        log.info("serving the API and the page on %s", found.at.url)
        ending.wait()
        threading.Thread(target=_give_up, daemon=True).start()
    log.info("stopped")


def _give_up() -> None:
    """End the process when Kafka does not answer and keeps it from ending by itself."""
    threading.Event().wait(_LONGEST_END)
    sys.stderr.write("dovecote: Kafka does not answer: ending without it\n")
    os._exit(0)


@push.command()
def subscribe(
    file: Annotated[
        Path | None, typer.Argument(help="a subscription, .json or .toml; - for standard input")
    ] = None,
    *,
    id_: Annotated[str | None, typer.Option("--id", help="what it is called")] = None,
    topic: Annotated[
        list[str] | None, typer.Option(help="a topic to read (can be repeated)")
    ] = None,
    endpoint: Annotated[str | None, typer.Option(help="URL that requests go to")] = None,
    api: Url = _HERE,
    token_file: Token = None,
) -> None:
    """
    Make a subscription; the same one again changes nothing.

    Example: dovecote push subscribe --id slack --topic flights --endpoint https://hooks.example/x

    With everything else there is: dovecote push subscribe slack.json
    """
    given: dict[str, Any] = {} if file is None else _read(file)
    if id_ is not None:
        given["id"] = id_
    if topic:
        given["topics"] = topic
    if endpoint is not None:
        given["endpoint"] = {**given.get("endpoint", {}), "url": endpoint}
    if not given:
        msg = "say what: a file, or --id, --topic and --endpoint"
        raise BadSettings(msg)
    made = Api.of(api, token_file)("POST", "/subscriptions", given)
    typer.echo(f"{made['id']}  {made['status']['state']}")


@push.command("list")
def list_(*, api: Url = _HERE, token_file: Token = None, as_json: AsJson = False) -> None:
    """
    List subscriptions, and what came of them.

    Example: dovecote push list
    """
    ask = Api.of(api, token_file)
    for each in ask("GET", "/subscriptions"):
        typer.echo(json.dumps(each) if as_json else _line(each))


@push.command()
def pause(id_: Id, *, api: Url = _HERE, token_file: Token = None) -> None:
    """
    Deliver nothing until it is resumed.

    Example: dovecote push pause slack
    """
    _say(Api.of(api, token_file)("POST", f"/subscriptions/{id_}/pause"))


@push.command()
def resume(id_: Id, *, api: Url = _HERE, token_file: Token = None) -> None:
    """
    Deliver again, from where it was.

    Example: dovecote push resume slack
    """
    _say(Api.of(api, token_file)("POST", f"/subscriptions/{id_}/resume"))


@push.command()
def delete(id_: Id, *, api: Url = _HERE, token_file: Token = None) -> None:
    """
    Forget a subscription; requests at work are finished.

    Example: dovecote push delete slack
    """
    Api.of(api, token_file)("DELETE", f"/subscriptions/{id_}")
    typer.echo(f"{id_}  deleted")


@push.command()
def replay(
    id_: Id,
    *,
    start: Annotated[
        str | None, typer.Option(help="earliest, latest, or a time such as 2026-02-01T09:30")
    ] = None,
    offset: Annotated[
        list[str] | None, typer.Option(help="TOPIC:PARTITION:OFFSET (can be repeated)")
    ] = None,
    api: Url = _HERE,
    token_file: Token = None,
) -> None:
    """
    Deliver again from another position.

    Example: dovecote push replay slack --start 2026-02-01T09:30+01:00
    """
    moved = Api.of(api, token_file)(
        "POST", f"/subscriptions/{id_}/replay", {"start": position(start, offset or [])}
    )
    for topic, partitions in moved["offsets"].items():
        for partition, number in partitions.items():
            typer.echo(f"{topic}/{partition} goes on at {number}")


@push.command()
def schema() -> None:
    """
    Print the JSON Schema of a subscription.

    Example: dovecote push schema > subscription.schema.json
    """
    from dovecote.push.rules.subscription.subscription import json_schema

    typer.echo(json.dumps(json_schema(), indent=2))


@push.command()
def key() -> None:
    """
    Make a key that seals secrets in the database.

    Example: dovecote push key > /run/secrets/push-keys
    """
    _require_push()
    from cryptography.fernet import Fernet

    typer.echo(Fernet.generate_key().decode())


@push.command()
def token() -> None:
    """
    Make a token for the API, and what the settings say of it.

    Example: dovecote push token
    """
    _require_push()
    from dovecote.push.api.access import hashed

    made = secrets.token_urlsafe(32)
    typer.echo(f"token     {made}")
    typer.echo(f"settings  {hashed(made)}")


def _require_push() -> None:
    missing = [each for each in _NEEDED if find_spec(each) is None]
    if missing:
        msg = f'push needs {", ".join(missing)}: pip install "./dovecote[push]"'
        raise BadSettings(msg)


def _read(file: Path) -> dict[str, Any]:
    try:
        text = sys.stdin.read() if str(file) == "-" else file.read_text(encoding="utf-8")
        found = tomllib.loads(text) if file.suffix == ".toml" else json.loads(text)
    except OSError as error:
        msg = f"cannot read {file}: {error.strerror}"
        raise BadSettings(msg) from error
    except ValueError as error:
        language = "TOML" if file.suffix == ".toml" else "JSON (a TOML file ends in .toml)"
        msg = f"{file} is not {language}: {error}"
        raise BadSettings(msg) from error
    if not isinstance(found, dict):
        msg = f"{file} holds no JSON object"
        raise BadSettings(msg)
    return found


def _line(each: dict[str, Any]) -> str:
    counts, delivery = each["counts"], each["delivery"]
    why = each["status"]["reason"] or delivery["trouble"]
    lag = "?" if delivery["lag"] is None else delivery["lag"]
    url = printed.text(each["endpoint"]["url"])
    return (
        f"{each['id']}  {each['status']['state']}  lag {lag}  delivered {counts['delivered']}"
        f"  failed {counts['failed']}  dead {counts['dead']}  {url}"
        + (f"  ({printed.text(why)})" if why else "")
    )


def _say(told: dict[str, Any]) -> None:
    typer.echo(f"{told['id']}  {told['status']['state']}")
