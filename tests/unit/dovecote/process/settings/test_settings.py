"""Settings come from a file and the environment above it, explain themselves, and keep secrets."""

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Self

import pytest
from hypothesis import given
from hypothesis import strategies as st
from psycopg.conninfo import conninfo_to_dict
from pydantic import Field, model_validator

from dovecote.process.settings.durations import duration
from dovecote.process.settings.loading import load
from dovecote.process.settings.models import Settings
from dovecote.process.settings.values import Dsn, Duration, KafkaProperties
from outbox import BadSettings
from outbox.postgres.session import without_secrets

SECRET = "tops3cret"  # noqa: S105  # what must never be seen

SECRET_PROPERTIES = [
    "sasl.password",
    "ssl.key.password",
    "ssl.key.pem",
    "ssl.keystore.password",
    "sasl.oauthbearer.config",
    "sasl.oauthbearer.client.secret",
    "sasl.oauthbearer.client.credentials.client.secret",
    "sasl.oauthbearer.assertion.private.key.passphrase",
    "sasl.oauthbearer.assertion.private.key.pem",
    "sasl.jaas.config",
]
PUBLIC_PROPERTIES = [
    "sasl.username",
    "sasl.oauthbearer.token.endpoint.url",
    "sasl.oauthbearer.client.credentials.client.id",
    "ssl.ca.location",
    "ssl.key.location",
    "ssl.ca.pem",
    "ssl.certificate.pem",
]
SECRET_PARAMETERS = [
    "password",
    "sslpassword",
    "oauth_client_secret",
    "scram_client_key",
    "scram_server_key",
]


class Http(Settings):
    port: int | None = None
    hosts: tuple[str, ...] = ()


class Example(Settings):
    dsn: Dsn
    kafka: KafkaProperties = Field(default_factory=dict)
    schema_name: str = Field(default="outbox", alias="schema")
    pause: Duration = timedelta(seconds=1)
    http: Http = Http()


class Needy(Settings):
    dsn: Dsn
    kafka: KafkaProperties
    http: Http


Load = Callable[..., Example]


@pytest.fixture
def read(tmp_path: Path) -> Load:
    def load_text(toml: str = 'dsn = "host=h"', **environ: str) -> Example:
        file = tmp_path / "example.toml"
        file.write_text(toml, encoding="utf-8")
        return load(Example, file, prefix="EXAMPLE", environ=environ)

    return load_text


def test_a_file_is_enough(read: Load) -> None:
    found = read('dsn = "host=h"\npause = "250ms"\n[http]\nport = 80\n[kafka]\n"linger.ms" = 5')
    assert (found.dsn, found.pause, found.http.port) == ("host=h", timedelta(seconds=0.25), 80)
    assert found.kafka == {"linger.ms": "5"}


def test_the_environment_is_enough() -> None:
    found = load(Example, None, prefix="EXAMPLE", environ={"EXAMPLE_DSN": "host=h"})
    assert found.dsn == "host=h"


def test_the_environment_wins_in_every_kind_of_field(read: Load) -> None:
    found = read(
        'dsn = "host=file"\nschema = "file"\n[http]\nport = 1\n[kafka]\n"client.id" = "file"',
        EXAMPLE_DSN="host=env",
        EXAMPLE_SCHEMA="env",
        EXAMPLE_PAUSE="3m",
        EXAMPLE_HTTP__PORT="2",
        EXAMPLE_HTTP__HOSTS='["a", "b"]',
        EXAMPLE_KAFKA__CLIENT_ID="env",
        OTHER_PAUSE="9h",
    )
    assert (found.dsn, found.schema_name, found.pause) == ("host=env", "env", timedelta(minutes=3))
    assert (found.http.port, found.http.hosts) == (2, ("a", "b"))
    assert found.kafka == {"client.id": "env"}


def test_a_dsn_may_be_a_table_of_libpq_parameters(read: Load) -> None:
    toml = 'dsn = { host = "h", port = 5433, password = { env = "PW" }, sslmode = "require" }'
    assert read(toml, PW=SECRET).dsn == f"host=h port=5433 password={SECRET} sslmode=require"


@pytest.mark.parametrize(
    ("toml", "environ", "says"),
    [
        ("", {}, "dsn: is missing"),
        ('dsn = "host=h"\nspeed = 1', {}, "speed: there is no such setting"),
        ('dsn = "host=h"\n[http]\nprot = 1', {}, r"http\.prot: there is no such setting"),
        ('dsn = "host=h"', {"EXAMPLE_SPEED": "1"}, "speed: there is no such setting"),
        ('dsn = "host=h"', {"EXAMPLE_HTTP__PROT": "1"}, r"http\.prot: there is no such setting"),
        ('dsn = "host=h"\n[http]\nport = "x"', {}, r"http\.port: must be a whole number"),
        ('dsn = "host=h"\nhttp = 5', {"EXAMPLE_HTTP__PORT": "1"}, "http: not a table, but EXAMPL"),
        ('dsn = "host=h"\nhttp = 5', {}, "http: must be a table$"),
        ('dsn = "host=h"\n[http]\nhosts = "a"', {}, r"hosts: must be a list, such as \["),
        ('dsn = "host=h"\nkafka.bootstrap.servers = "b"', {}, 'write "bootstrap.servers" ='),
        ('dsn = "h', {}, "is not TOML"),
        pytest.param(f"pause = {'9' * 5_000}", {}, "is not TOML: Exceeds", id="digits"),
        pytest.param(f"pause = {'[' * 3_000}", {}, "a table or list nests too", id="list"),
        pytest.param(f"{'a.' * 3_000}a = 1", {}, "a table or list nests too", id="table"),
        pytest.param("", {f"EXAMPLE_{'A__' * 3_000}A": ""}, "or list nests too", id="variable"),
        ('dsn = "host=h"\nkafka = 5', {}, "kafka: must be a table"),
        ('dsn = "host=h"\n[kafka]\n"linger.ms" = [5]', {}, r"kafka: linger\.ms must be a string"),
        ('dsn = "host=h"\nschema = { env = "NOPE" }', {}, "schema: environment variable NOPE is"),
        ('dsn = { env = "NOPE" }', {}, "dsn: environment variable NOPE is not set"),
        ('dsn = { file = "/nope" }', {}, "dsn: cannot read /nope: No such file"),
        ('dsn = { hots = "h" }', {}, 'dsn: .*invalid connection option "hots"'),
        ('dsn = "host=h"\npause = 10', {}, "pause: 10 is not a duration"),
        ('dsn = "host=h"\npause = true', {}, "pause: True is not a duration"),
        ('dsn = "host=h"\npause = "10"', {}, "pause: '10' is not a duration; write"),
        ('dsn = "host=h"\npause = "99999999999h"', {}, "too long a duration"),
    ],
)
def test_a_bad_setting_is_named_by_its_path(
    read: Load, toml: str, environ: dict[str, str], says: str
) -> None:
    with pytest.raises(BadSettings, match=says):
        read(toml, **environ)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadSettings, match=r"cannot read .*nope\.toml: No such file"):
        load(Example, tmp_path / "nope.toml", prefix="EXAMPLE", environ={})


def test_all_that_is_wrong_is_said_at_once(read: Load) -> None:
    with pytest.raises(BadSettings) as refused:
        read('pause = "x"\nspeed = 1')
    assert [line.split(":")[0].strip() for line in str(refused.value).splitlines()[1:]] == [
        "dsn",
        "pause",
        "speed",
    ]


@pytest.mark.parametrize(
    ("toml", "environ"),
    [
        ('dsn = ""', {}),
        ("dsn = {}", {}),
        ('dsn = " "', {}),
        ('dsn = "host=h"', {"EXAMPLE_DSN": ""}),
        ('dsn = { env = "DB" }', {"DB": "\n"}),
    ],
)
def test_an_empty_dsn_is_none_whatever_libpq_would_make_of_it(
    read: Load, toml: str, environ: dict[str, str]
) -> None:
    with pytest.raises(BadSettings, match="dsn: is empty: give a connection string, such as"):
        read(toml, **environ)


def test_what_is_missing_without_a_file_is_said_where_to_give() -> None:
    with pytest.raises(BadSettings) as refused:
        load(Needy, None, prefix="EXAMPLE", environ={"DOVECOTE_DSN": "host=h"})
    assert str(refused.value).splitlines()[1:] == [
        "  dsn: is missing; give --config, or set EXAMPLE_DSN",
        "  kafka: is missing; give --config, or set EXAMPLE_KAFKA__BOOTSTRAP_SERVERS",
        "  http: is missing; give --config, or set EXAMPLE_HTTP__…",
    ]


@pytest.mark.parametrize(
    ("toml", "environ", "says"),
    [
        (
            'dsn = "host=h"',
            {"EXAMPLE_HTTP_PORT": "1"},
            (
                "http_port: there is no such setting (set by EXAMPLE_HTTP_PORT); "
                "a table takes two underscores: EXAMPLE_HTTP__PORT"
            ),
        ),
        (
            'dsn = "host=h"',
            {"EXAMPLE_KAFKA_CLIENT_ID": "1"},
            (
                "kafka_client_id: there is no such setting (set by EXAMPLE_KAFKA_CLIENT_ID); "
                "a table takes two underscores: EXAMPLE_KAFKA__CLIENT_ID"
            ),
        ),
        (
            'dsn = "host=h"',
            {"EXAMPLE_HTTP_PROT": "1"},
            "http_prot: there is no such setting (set by EXAMPLE_HTTP_PROT)",
        ),
        (
            'dsn = "host=h"',
            {"EXAMPLE_HTTP__PORT__IN": "1"},
            "http.port: must be a whole number (set by EXAMPLE_HTTP__PORT__IN)",
        ),
        ('dsn = "host=h"\nhttp_port = 1', {}, "http_port: there is no such setting"),
        (
            'dsn = "host=h"\npause = "x"',
            {"EXAMPLE_PAUSE": "10"},
            (
                'pause: \'10\' is not a duration; write "250ms", "60s", "3m" or "2h"'
                " (set by EXAMPLE_PAUSE)"
            ),
        ),
        (
            'http = { port = "x" }',
            {"EXAMPLE_DSN": "host=h"},
            ("http.port: must be a whole number (set in FILE)"),
        ),
        (
            'dsn = { env = "DB" }',
            {"DB": "h"},
            (
                "dsn: libpq cannot read this connection string (not shown, it may hold a password)"
                " (set by DB)"
            ),
        ),
        ('dsn = { env = "DB" }', {}, "dsn: environment variable DB is not set"),
        (
            'dsn = "host=h"\n[kafka]\nx = []',
            {},
            "kafka: x must be a string, a number or a boolean",
        ),
    ],
)
def test_who_set_what_is_wrong_is_named(
    read: Load, tmp_path: Path, toml: str, environ: dict[str, str], says: str
) -> None:
    with pytest.raises(BadSettings) as refused:
        read(toml, **environ)
    (line,) = str(refused.value).splitlines()[1:]
    assert line.strip() == says.replace("FILE", str(tmp_path / "example.toml"))


@pytest.mark.parametrize("name", SECRET_PROPERTIES)
def test_a_secret_of_kafka_is_refused_inline_and_taken_from_elsewhere(
    read: Load, tmp_path: Path, name: str
) -> None:
    toml = 'dsn = "host=h"\n[kafka]\n"{}" = {}'
    with pytest.raises(BadSettings, match=f"{name} is a secret") as refused:
        read(toml.format(name, f'"{SECRET}"'))
    assert SECRET not in str(refused.value)
    (tmp_path / "secret").write_text(f"{SECRET}\n")
    for pointer in ('{ env = "NAME" }', f'{{ file = "{tmp_path}/secret" }}'):
        found = read(toml.format(name, pointer), NAME=SECRET)
        assert found.kafka[name] == SECRET
        assert SECRET not in repr(found)
    variable = "EXAMPLE_KAFKA__" + name.replace(".", "_").upper()
    assert read(**{variable: SECRET}).kafka[name] == SECRET


@pytest.mark.parametrize("name", PUBLIC_PROPERTIES)
def test_what_is_no_secret_may_stand_in_the_file(read: Load, name: str) -> None:
    found = read(f'dsn = "host=h"\n[kafka]\n"{name}" = "x"')
    assert found.kafka[name] == "x"


@pytest.mark.parametrize("name", SECRET_PARAMETERS)
@pytest.mark.parametrize("form", ['"host=h {0}={1}"', '{{ host = "h", {0} = "{1}" }}'])
def test_a_secret_of_postgres_is_refused_inline(read: Load, name: str, form: str) -> None:
    with pytest.raises(BadSettings, match=name) as refused:
        read("dsn = " + form.format(name, SECRET))
    assert SECRET not in str(refused.value)


def test_a_whole_dsn_with_its_password_may_come_from_the_environment(read: Load) -> None:
    uri = f"postgresql://u:{SECRET}@h/db"
    for found in (read('dsn = { env = "DB" }', DB=uri), read("", EXAMPLE_DSN=uri)):
        assert found.dsn == uri
        assert SECRET not in repr(found)
        assert SECRET not in str(found)


@pytest.mark.parametrize(
    "dsn",
    [
        f"postgresql://u:%zz{SECRET}@h/db",
        f"host=h password=two {SECRET}",
        f"postgresql://u:{SECRET}@[h/db",
        f"host='h password={SECRET}",
        f"{SECRET}",
    ],
)
def test_a_dsn_that_cannot_be_read_is_not_quoted(read: Load, dsn: str) -> None:
    with pytest.raises(BadSettings, match="dsn: libpq cannot read") as refused:
        read("", EXAMPLE_DSN=dsn)
    assert SECRET not in str(refused.value)
    assert refused.value.__cause__ is None
    assert refused.value.__suppress_context__


@pytest.mark.parametrize(
    "toml",
    [
        "http = { env = 'WRONG' }",
        "[http]\nport = { env = 'WRONG' }",
        "[kafka]\n'sasl.password' = { env = 'WRONG' }\n'x' = [1]",
        "speed = { env = 'WRONG' }",
    ],
)
def test_a_value_from_the_environment_is_not_quoted_in_an_error(read: Load, toml: str) -> None:
    with pytest.raises(BadSettings) as refused:
        read(toml, EXAMPLE_DSN="host=h", WRONG=SECRET)
    assert SECRET not in str(refused.value)


def test_a_file_that_holds_a_secret_must_be_text(read: Load, tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"\xff\xfe")
    with pytest.raises(BadSettings, match="secret is not UTF-8 text"):
        read(f'dsn = {{ file = "{tmp_path}/secret" }}')


def test_settings_never_change(read: Load) -> None:
    with pytest.raises(ValueError, match="frozen"):
        read().pause = timedelta(0)  # type: ignore[misc]  # the mistake


@pytest.mark.parametrize(
    ("written", "seconds"),
    [("250ms", 0.25), ("60s", 60), ("1.5s", 1.5), ("3m", 180), ("2h", 7200), (" 1s ", 1)],
)
def test_a_duration_is_a_number_with_its_unit(written: str, seconds: float) -> None:
    assert duration(written) == timedelta(seconds=seconds)


@given(st.text() | st.integers() | st.floats() | st.none() | st.booleans())
def test_what_is_no_duration_is_a_value_error(written: object) -> None:
    try:
        assert isinstance(duration(written), timedelta)
    except ValueError as error:
        assert "duration" in str(error)  # noqa: PT017  # most examples raise, a few do not


PLAIN = st.text(st.characters(min_codepoint=33, max_codepoint=126, exclude_characters="\\'"))


@given(PLAIN.map(lambda noise: noise + SECRET), st.sampled_from(SECRET_PARAMETERS))
def test_a_dsn_without_its_secrets_says_only_who_and_where(secret: str, name: str) -> None:
    dsn = f"host=h port=5433 user=u dbname=d sslmode=disable {name}='{secret}'"
    shown = conninfo_to_dict(without_secrets(dsn))
    assert shown == {"host": "h", "port": "5433", "user": "u", "dbname": "d"}


def test_a_default_that_rests_on_a_refused_setting_is_no_error_of_its_own(tmp_path: Path) -> None:
    class Window(Settings):
        within: Duration
        close: Duration = Field(default_factory=lambda found: found["within"])

    file = tmp_path / "window.toml"
    file.write_text('within = "soon"', encoding="utf-8")
    with pytest.raises(BadSettings) as refused:
        load(Window, file, prefix="WINDOW", environ={})
    (line,) = str(refused.value).splitlines()[1:]
    assert line.startswith("  within: 'soon' is not a duration")


def test_what_is_said_of_several_settings_names_no_other() -> None:
    class Pair(Settings):
        low: int = 2
        high: int = 1

        @model_validator(mode="after")
        def _ordered(self) -> Self:
            msg = "low is more than high"
            raise ValueError(msg)

    with pytest.raises(BadSettings, match=r"\n  low is more than high$"):
        load(Pair, None, prefix="PAIR", environ={})
