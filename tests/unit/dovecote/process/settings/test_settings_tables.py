"""A variable holds any table of any settings as JSON, and any field within one."""

import json
from collections.abc import Iterator, Mapping
from typing import Any, get_origin

import pytest
from pydantic import BaseModel

from dedup.settings.consumer import ConsumeSettings
from dovecote.console.settings import ConsoleSettings
from dovecote.observe.sources import WatchSettings
from dovecote.process.settings.loading import load
from dovecote.push.settings import PushSettings
from outbox.errors import BadSettings
from outbox.secrets import fresh_all
from relay.settings import RelaySettings
from spark_jobs.query.settings import DedupSettings
from tests.settings_page import models_in, sections

BROKERS = {"default": {"bootstrap.servers": "a:1"}, "other": {"bootstrap.servers": "b:2"}}
PUSH = {"P_DSN": "dbname=push", "P_BROKERS": json.dumps(BROKERS)}
LONGEST = 5


def tables(model: type[BaseModel], path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield the path of each table of a file, those within tables of names with one name."""
    for name, info in model.model_fields.items():
        here = (*path, info.alias or name)
        many = get_origin(info.annotation) is dict
        inner = list(dict.fromkeys(models_in(info.annotation)))
        if not (many or inner) or len(here) > LONGEST:
            continue
        yield here
        for each in inner:
            yield from tables(each, (*here, "name") if many else here)
        if many and inner:
            yield (*here, "name")


FILES = {each.model.__name__: each.model for each in sections()}
# Flows are no TOML, and have no variables.
PATHS = sorted(
    {
        (name, path)
        for name in FILES
        if name not in {"Flow", "Step"}
        for path in tables(FILES[name])
    }
)


def refusal(model: type[BaseModel], environ: Mapping[str, str]) -> str:
    """Return what is wrong with these variables; empty: nothing is."""
    try:
        load(model, None, prefix="P", environ=environ)
    except BadSettings as error:
        return str(error)
    return ""


@pytest.mark.parametrize(("name", "path"), PATHS, ids=[f"{n}.{'.'.join(p)}" for n, p in PATHS])
def test_each_table_is_one_variable_if_that_is_wanted(name: str, path: tuple[str, ...]) -> None:
    variable = "__".join(("P", *path)).upper()
    said = refusal(FILES[name], {variable: '{"no-such": {"field": 1}}'})
    # The pointer itself was taken for the table.
    assert ".env: " not in said
    assert f"'{variable}'" not in said


def test_the_brokers_of_push_are_one_variable() -> None:
    assert load(PushSettings, None, prefix="P", environ=PUSH).brokers == BROKERS


def test_one_broker_is_one_variable() -> None:
    environ = {"P_DSN": "dbname=push", "P_BROKERS__DEFAULT": '{"bootstrap.servers": "a:1"}'}
    found = load(PushSettings, None, prefix="P", environ=environ)
    assert found.brokers == {"default": {"bootstrap.servers": "a:1"}}


def test_a_file_may_point_to_the_variable_of_a_table(tmp_path: Any) -> None:
    file = tmp_path / "push.toml"
    file.write_text('dsn = "dbname=push"\nbrokers = { env = "ALL" }\nhttp = { env = "WEB" }\n')
    environ = {"ALL": json.dumps(BROKERS), "WEB": '{"port": 8080}'}
    found = load(PushSettings, file, prefix="P", environ=environ)
    assert (found.brokers, found.http.port) == (BROKERS, 8080)


def test_a_secret_in_json_is_still_a_pointer() -> None:
    kafka = {"bootstrap.servers": "a:1", "sasl.password": {"env": "PASSWORD"}}
    environ = {"P_DSN": "dbname=shop", "P_KAFKA": json.dumps(kafka), "PASSWORD": "geheim"}
    found = load(RelaySettings, None, prefix="P", environ=environ)
    assert fresh_all(found.kafka, anew=False)["sasl.password"] == "geheim"
    kafka["sasl.password"] = "geheim"
    with pytest.raises(BadSettings, match=r"sasl\.password is a secret") as raised:
        load(RelaySettings, None, prefix="P", environ={**environ, "P_KAFKA": json.dumps(kafka)})
    assert "geheim" not in str(raised.value)


def test_fields_within_tables_of_names_are_variables() -> None:
    environ = {
        "P_SOURCES__OUTBOX__SHOP__NAME": "orders",
        "P_SOURCES__OUTBOX__SHOP__SHARDS": "3",
        "P_SOURCES__OUTBOX__SHOP__RETENTION": "3s",
        "P_SOURCES__OUTBOX__SHOP__METRICS": '["http://relay:9464"]',
        "P_SOURCES__CONSUMER__BILLS__INBOX__DSN": "dbname=bills",
        "P_SOURCES__CONSUMER__BILLS__INBOX__RETENTION": "2h",
    }
    sources = load(WatchSettings, None, prefix="P", environ=environ).sources
    shop, inbox = sources.outbox["shop"], sources.consumer["bills"].inbox
    assert inbox is not None
    assert (shop.name, shop.shards, shop.metrics) == ("orders", 3, ("http://relay:9464",))
    assert (shop.retention.total_seconds(), inbox.retention.total_seconds()) == (3, 7200)


def test_a_token_is_text_or_a_table() -> None:
    token = f"sha256:{'0' * 64}"
    for text in (token, json.dumps({"sha256": token})):
        environ = {**PUSH, "P_API__TOKENS__OPS": text}
        push = load(PushSettings, None, prefix="P", environ=environ)
        assert push.api.tokens["ops"].sha256 == token
    environ = {"P_CONSOLE__TOKENS": json.dumps({"ops": {"sha256": token}})}
    console = load(ConsoleSettings, None, prefix="P", environ=environ).console
    assert console.tokens["ops"].sha256 == token


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("bootstrap.servers=a:1", "P_KAFKA is no JSON object: Expecting value"),
        ("[]", "P_KAFKA is no JSON object;"),
        ('{"a": 1, "a": 2}', 'P_KAFKA is no JSON object: the key "a" stands twice'),
        ("", "P_KAFKA is no JSON object: Expecting value"),
    ],
)
def test_text_that_is_no_table_is_refused_with_what_to_write(text: str, said: str) -> None:
    with pytest.raises(BadSettings, match="a whole table as JSON") as raised:
        load(RelaySettings, None, prefix="P", environ={"P_DSN": "dbname=shop", "P_KAFKA": text})
    assert f"kafka: {said}" in str(raised.value)


def test_a_variable_that_is_not_set_is_named(tmp_path: Any) -> None:
    file = tmp_path / "relay.toml"
    file.write_text('dsn = "dbname=shop"\nkafka = { env = "NOT_THERE" }\n')
    with pytest.raises(BadSettings, match="kafka: environment variable NOT_THERE is not set"):
        load(RelaySettings, file, prefix="P", environ={})


def test_a_table_and_a_field_of_it_are_not_both_set() -> None:
    environ = {**PUSH, "P_BROKERS__DEFAULT__CLIENT_ID": "x"}
    with pytest.raises(BadSettings, match="set one of the two") as raised:
        load(PushSettings, None, prefix="P", environ=environ)
    assert "P_BROKERS sets all of it, and P_BROKERS__DEFAULT__CLIENT_ID a field" in str(
        raised.value
    )


def test_an_unknown_field_within_json_is_named_with_its_variable() -> None:
    environ = {"P_HTTP": '{"prot": 1}'}
    with pytest.raises(BadSettings, match=r"http\.prot: there is no such setting \(set by P_HTTP"):
        load(ConsumeSettings, None, prefix="P", environ=environ)


def test_the_configuration_of_spark_is_one_variable_as_before() -> None:
    environ = {"P_SPARK__CONF": '{"spark.executor.memory": "2g"}'}
    with pytest.raises(BadSettings) as raised:  # other settings are missing
        load(DedupSettings, None, prefix="P", environ=environ)
    assert "spark.conf" not in str(raised.value)
