"""Keep contracts in a schema registry, and read them from there."""

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from dovecote.contracts.rules.contract import Contract, entry
from outbox.errors import BadSettings, DovecoteError

_FORMAT = "JSON"
_OURS = "x-dovecote"
_TIMEOUT_S = 30
# The registry's own for a subject, a version or a schema that it does not have. Anybody at a wrong
# URL may answer with the status 404 alone, and every type would seem to be added.
_NONE_OF_IT = {40401, 40402, 40403}


class RegistryRefused(DovecoteError):
    """A schema registry did not do what it was asked for."""


def subject_of(contract: Contract) -> str:
    """
    Return the subject of a contract: topic, type and, if it has any, its version.

    That is the strategy `topic_record` of clients, because a topic may have events of many types.
    """
    version = "" if contract.version is None else f"-v{contract.version}"
    return f"{contract.topic}-{contract.type}{version}"


def register(properties: Mapping[str, str], contracts: Iterable[Contract]) -> dict[str, int]:
    """
    Register the schema of each contract; return the registry's id by subject.

    The schema has the rest of the contract under `x-dovecote`. A schema that is there already
    keeps its id.

    Raises:
        RegistryRefused: the registry refuses one, by its own rules of compatibility, or is away.
        BadSettings: its client is missing, or takes no such properties.
    """
    found = {}
    with _client(properties) as client:
        schema = import_module("confluent_kafka.schema_registry").Schema
        for each in contracts:
            name = subject_of(each)
            text = json.dumps({**each.schema, _OURS: each.described()}, ensure_ascii=False)
            with _explained(f"register {name}"):
                found[name] = int(client.register_schema(name, schema(text, _FORMAT)))
    return found


def registered(properties: Mapping[str, str], contracts: Iterable[Contract]) -> list[Contract]:
    """
    Return what a registry has of the subjects of contracts; a subject that it lacks is left out.

    Raises:
        RegistryRefused: the registry is away, or what it has is no contract.
        BadSettings: its client is missing, or takes no such properties.
    """
    found = []
    with _client(properties) as client:
        for each in contracts:
            name = subject_of(each)
            with _explained(f"read {name}"):
                text = _latest(client, name)
            if text is not None:
                found.append(_contract(each, name, text))
    return found


def _latest(client: Any, subject: str) -> str | None:  # noqa: ANN401  # the client's own class
    error = import_module("confluent_kafka.schema_registry").SchemaRegistryError
    try:
        return str(client.get_latest_version(subject).schema.schema_str)
    except error as raised:
        if raised.error_code in _NONE_OF_IT:
            return None
        raise


def _contract(asked: Contract, subject: str, text: str) -> Contract:
    try:
        schema = json.loads(text)
    except (ValueError, RecursionError):
        schema = None
    if not isinstance(schema, dict):
        msg = f"subject {subject} of the registry has no JSON Schema: another program owns it"
        raise RegistryRefused(msg)
    described = schema.pop(_OURS, None)
    if not isinstance(described, dict):
        # Another program registered it, and said nothing besides the schema.
        described = asked.described()
    try:
        return entry({**described, "schema": schema}, f"subject {subject} of the registry")
    except BadSettings as error:
        raise RegistryRefused(str(error)) from error


@contextmanager
def _client(properties: Mapping[str, str]) -> Iterator[Any]:
    try:
        library = import_module("confluent_kafka.schema_registry")
        client = library.SchemaRegistryClient({"timeout": _TIMEOUT_S, **properties})
    except (ImportError, ValueError, TypeError) as error:
        msg = f"registry: {error} (pip install 'dovecote[schema-registry]' brings its client)"
        raise BadSettings(msg) from error
    with client:
        yield client


@contextmanager
def _explained(what: str) -> Iterator[None]:
    try:
        yield
    except RegistryRefused:
        raise
    except Exception as error:
        # The client's own error, or that of whichever library it has for HTTP.
        msg = f"the schema registry did not {what}: {type(error).__name__}: {error}"
        raise RegistryRefused(msg) from error
