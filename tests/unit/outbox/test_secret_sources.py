"""A command's output is a secret: bounded, kept for a while, and read anew after a refusal."""

import gc
import logging
import os
import pickle
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4
from weakref import ref

import pytest
from psycopg.conninfo import conninfo_to_dict

from dovecote.process.settings.loading import load
from outbox import secret_sources
from outbox.errors import BadSettings
from outbox.kafka import Credentials
from outbox.postgres.session import conninfo
from outbox.secret_sources import CommandText, FileText, RdsToken
from outbox.secrets import Reread, asked, fresh, fresh_all, mapped
from relay.settings import RelaySettings
from tests.support.waiting import patient, until


def program(folder: Path, text: str) -> tuple[str, ...]:
    """Return a command that runs this Python program."""
    file = folder / f"secret_{uuid4().hex}.py"  # what a command prints is kept
    file.write_text(text, encoding="utf-8")
    return sys.executable, "-S", str(file)


def counting(folder: Path) -> tuple[str, ...]:
    """Return a command that prints how often it has run."""
    file = folder / "count"
    return program(
        folder,
        "from pathlib import Path\n"
        f"file = Path({str(file)!r})\n"
        "file.write_text((file.read_text() if file.exists() else '') + '.')\n"
        "print(f'run {len(file.read_text())}')\n",
    )


def relay(folder: Path, dsn: str) -> RelaySettings:
    file = folder / "relay.toml"
    file.write_text(f'dsn = {dsn}\n[kafka]\n"bootstrap.servers" = "localhost:1"\n')
    return load(RelaySettings, file, prefix="NONE", environ={"USER_NAME": "ann"})


def passes(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """Let time pass for what is kept."""
    was = time.monotonic
    monkeypatch.setattr(time, "monotonic", lambda: was() + seconds)


def test_a_command_is_run_again_when_its_output_is_old_or_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = CommandText(counting(tmp_path), every=60)
    text = Reread(source)
    assert (text, text.again()) == ("run 1", "run 1")
    # A server refuses many connections at once.
    assert text.again(anew=True) == "run 1"
    passes(monkeypatch, 2)
    assert (text.again(), text.again(anew=True), text.again()) == ("run 1", "run 2", "run 2")
    passes(monkeypatch, 61)
    assert (text.again(), Reread(source)) == ("run 3", "run 3")


def test_threads_that_ask_at_once_run_it_once(tmp_path: Path) -> None:
    text = Reread(CommandText(counting(tmp_path), every=0.0001))
    found: list[str] = []
    threads = [
        threading.Thread(target=lambda: found.append(text.again(anew=True))) for _ in range(8)
    ]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert found == ["run 1"] * 8


def test_a_forked_process_runs_it_for_itself(tmp_path: Path) -> None:
    source = CommandText(counting(tmp_path), every=60)
    assert source() == "run 1"
    read, write = os.pipe()
    if (child := os.fork()) == 0:
        os.write(write, source().encode())
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(read, 100) == b"run 2"
    for each in (read, write):
        os.close(each)


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("print('plain')", "plain"),
        ("print('  kept\\n')", "  kept\n"),
        ("import sys; sys.stdout.write('crlf\\r\\n')", "crlf"),
        ("import sys; print('noise', file=sys.stderr); print('ü')", "ü"),
    ],
)
def test_only_one_line_end_is_taken_off(tmp_path: Path, text: str, printed: str) -> None:
    assert CommandText(program(tmp_path, f"{text}\n"))() == printed


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "import sys; print('hush'); sys.exit('first\\nno such path')",
            r"failed \(status 1\): no such path$",
        ),
        ("print('hush'); raise SystemExit(1)", r"failed \(status 1\): it says nothing$"),
        (
            "import os, signal; print('hush', flush=True); os.kill(os.getpid(), signal.SIGKILL)",
            r"failed \(signal 9\)",
        ),
        ("print('hush' * 100_000)", "prints more than 65536 bytes, which is no secret"),
        ("import sys\nwhile True: sys.stdout.write('hush' * 1000)", "more than 65536 bytes"),
        ("import sys; sys.stdout.buffer.write(b'hush\\xff')", "does not print UTF-8 text"),
        ("print()", "prints nothing"),
        ("", "prints nothing"),
        ("print('hush\\0')", "prints a NUL character"),
    ],
)
def test_a_command_that_fails_says_why_and_never_what_it_prints(
    tmp_path: Path, text: str, said: str
) -> None:
    with pytest.raises(ValueError, match=said) as raised:
        CommandText(program(tmp_path, f"{text}\n"))()
    assert "hush" not in str(raised.value)


def test_a_command_that_hangs_is_ended_with_all_that_it_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(secret_sources, "SECONDS", patient(0.5))
    pid = tmp_path / "pid"
    words = ("sh", "-c", f"sleep 600 & echo $! > {pid}; echo hush; wait")
    with pytest.raises(ValueError, match=r"^sh took longer than"):
        CommandText(words)()
    until(lambda: not is_running(int(pid.read_text())), within=10, what="the child is gone")


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def test_a_command_that_fails_later_leaves_the_last_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    ok = tmp_path / "ok"
    ok.touch()
    words = program(tmp_path, f"import os, sys; os.stat({str(ok)!r}); print('one')\n")
    text = Reread(CommandText(words, every=60))
    ok.unlink()
    passes(monkeypatch, 61)
    assert text.again() == "one"
    assert "a secret is used as it was read before" in caplog.text
    assert "FileNotFoundError" in caplog.text


def test_settings_take_commands_for_every_secret(tmp_path: Path) -> None:
    words = list(counting(tmp_path))
    found = relay(tmp_path, f'{{ host = "a", password = {{ command = {words}, every = "1h" }} }}')
    assert conninfo_to_dict(conninfo(found.dsn))["password"] == "run 1"  # noqa: S105  # a count
    whole = program(tmp_path, "print('host=b password=x')\n")
    found = relay(tmp_path, f"{{ command = {list(whole)} }}")
    assert conninfo_to_dict(found.dsn)["host"] == "b"
    assert "password" not in repr(found)


@pytest.mark.parametrize(
    ("dsn", "said"),
    [
        ('{ command = "vault read" }', "command must be a list of words"),
        ("{ command = [] }", "command must be a list of words"),
        ('{ command = ["vault", 7] }', "command must be a list of words"),
        ('{ command = [""] }', "the first word is the program, and it is empty"),
        ('{ command = ["true"], every = "often" }', "'often' is not a duration"),
        ('{ command = ["true"], often = "1m" }', "no 'often'"),
        ('{ command = ["/none/such"] }', "cannot run /none/such: No such file or directory"),
        ('{ command = ["false"] }', r"false failed \(status 1\)"),
        ('{ host = "a", password = { command = ["true"] } }', "true prints nothing"),
        ('{ host = "a", password = "p" }', "password is a secret: write { env"),
        ('{ host = "a", password = { aws-rds = {} } }', "aws-rds: user missing"),
        ('{ password = { aws-rds = { reg = "x" } } }', "aws-rds: there is no such setting as 'r"),
        ('{ password = { aws-rds = "eu" } }', "aws-rds must be a table"),
        (
            '{ host = "a", user = "u", password = { aws-rds = { port = "x" } } }',
            "aws-rds: port must be a number",
        ),
    ],
)
def test_a_pointer_that_cannot_be_followed_is_one_line(
    tmp_path: Path, dsn: str, said: str
) -> None:
    with pytest.raises(BadSettings, match=said) as raised:
        relay(tmp_path, dsn)
    assert len(str(raised.value).splitlines()) == 2


def test_a_token_of_aws_needs_its_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "boto3", None)
    with pytest.raises(BadSettings, match=r"aws-rds needs boto3: pip install 'dovecote\[aws\]'"):
        relay(tmp_path, '{ host = "h", user = "u", password = { aws-rds = {} } }')


def test_a_token_of_aws_is_signed_for_host_port_and_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("boto3")
    for name, value in (
        ("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE"),
        ("AWS_SECRET_ACCESS_KEY", "hush"),
        ("AWS_EC2_METADATA_DISABLED", "true"),
        ("AWS_CONFIG_FILE", str(tmp_path / "none")),
    ):
        monkeypatch.setenv(name, value)
    dsn = (
        '{ host = "db.eu-central-1.rds.amazonaws.com", port = 5433, user = { env = "USER_NAME" },'
        ' password = { aws-rds = { region = "eu-central-1" } } }'
    )
    found = conninfo_to_dict(conninfo(relay(tmp_path, dsn).dsn))
    token = str(found["password"])
    assert token.startswith("db.eu-central-1.rds.amazonaws.com:5433/?Action=connect&DBUser=ann&")
    assert "X-Amz-Signature=" in token
    assert "eu-central-1%2Frds-db" in token
    assert "hush" not in token
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    with pytest.raises(ValueError, match="aws-rds: Unable to locate credentials"):
        RdsToken("other", 5432, "ann", "eu-central-1")()


def test_what_travels_is_read_where_it_can_be(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text("one")
    text = Reread(FileText(file))
    file.write_text("two")
    travelled = pickle.dumps({"p": text, "q": mapped(text, str.upper)})
    arrived = pickle.loads(travelled)  # noqa: S301  # our own
    assert arrived == {"p": "two", "q": "TWO"}
    file.write_text("three")
    assert fresh_all(arrived) == {"p": "three", "q": "TWO"}


def test_what_another_machine_lacks_is_no_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "secret"
    file.write_text("one")
    travelled = pickle.dumps(Reread(FileText(file)))
    file.unlink()
    with caplog.at_level(logging.INFO):
        assert fresh(pickle.loads(travelled)) == "one"  # noqa: S301  # our own
    assert caplog.text == ""


def test_a_function_is_called_again_and_its_error_hides_its_message(
    caplog: pytest.LogCaptureFixture,
) -> None:
    answers: list[str | Exception] = ["one", "two", RuntimeError("hush")]

    def give() -> str:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    text = asked(give, "dsn")
    assert (text, fresh(text), fresh(text)) == ("one", "two", "two")
    assert "the function raised RuntimeError" in caplog.text
    assert "hush" not in caplog.text
    assert asked("plain", "dsn") == "plain"
    wrong: Callable[[], str] = lambda: 7  # type: ignore[assignment,return-value]  # noqa: E731
    with pytest.raises(ValueError, match="dsn: the function returned int"):
        asked(wrong, "dsn")


class Client:
    """Notes what it is given."""

    def __init__(self) -> None:
        self.given: list[tuple[str, str]] = []

    def set_sasl_credentials(self, username: str, password: str, /) -> None:
        self.given.append((username, password))


class Told:
    def __init__(self, code: int) -> None:
        self._code = code

    def code(self) -> int:
        return self._code


def of_ann(file: Path) -> dict[str, str]:
    return {"sasl.username": "ann", "sasl.password": Reread(FileText(file))}


def test_a_file_with_a_nul_cannot_be_read_yet(tmp_path: Path) -> None:
    (file := tmp_path / "secret").write_bytes(b"host=h\0")
    with pytest.raises(ValueError, match="secret has a NUL character, which no secret has"):
        FileText(file)()


def test_a_client_that_is_refused_gets_the_password_as_it_is_now(tmp_path: Path) -> None:
    file, client, heard = tmp_path / "secret", Client(), list[object]()
    file.write_text("one")
    credentials = Credentials(of_ann(file), heard.append)
    credentials.keep(client)
    file.write_text("two")
    credentials.heard(Told(-195))
    assert client.given == []
    credentials.heard(Told(-169))
    until(lambda: client.given == [("ann", "two")], within=10, what="a new password")
    assert len(heard) == 2
    credentials.let_go()


def test_a_password_that_is_written_after_the_refusal_is_found(tmp_path: Path) -> None:
    # librdkafka would say the next refusal after 30 seconds.
    file, client, reads = tmp_path / "secret", Client(), list[str]()
    file.write_text("one")

    def read(*, anew: bool) -> str:
        text = FileText(file)(anew=anew)
        reads.append(text)
        return text

    credentials = Credentials({"sasl.username": "ann", "sasl.password": Reread(read)})
    credentials.keep(client)
    reads.clear()
    credentials.heard(Told(-169))
    until(lambda: len(reads) > 1, within=10, what="the old password was read again")
    for text in ("two", "three"):
        file.write_text(text)
        until(lambda: client.given[-1] == ("ann", text), within=20, what=text)  # noqa: B023  # at once
    assert client.given == [("ann", each) for each in ("one", "two", "three")]
    credentials.let_go()


def test_a_refusal_before_there_is_a_client_is_not_forgotten(tmp_path: Path) -> None:
    file, client = tmp_path / "secret", Client()
    file.write_text("one")
    credentials = Credentials(of_ann(file))
    credentials.heard(Told(-169))
    credentials.keep(client)
    file.write_text("two")
    until(lambda: ("ann", "two") in client.given, within=20, what="a new password")
    credentials.let_go()


class Closed:
    def set_sasl_credentials(self, _username: str, _password: str, /) -> None:
        msg = "Consumer closed"
        raise RuntimeError(msg)


def test_a_closed_client_is_let_go(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text("one")
    credentials = Credentials(of_ann(file))
    credentials.keep(Closed())
    credentials.heard(Told(-169))
    until(lambda: not credentials.change, within=10, what="the client is let go")


def test_a_client_may_end_while_its_password_is_looked_for(tmp_path: Path) -> None:
    file, client = tmp_path / "secret", Client()
    file.write_text("one")
    credentials = Credentials(of_ann(file))
    credentials.keep(client)
    credentials.heard(Told(-169))
    given, known = client.given, ref(client)
    until(lambda: given, within=10, what="the thread has looked")
    del credentials, client
    until(lambda: gc.collect() >= 0 and known() is None, within=20, what="the client is gone")


def test_a_fixed_password_is_not_looked_for() -> None:
    credentials = Credentials({"sasl.username": "ann", "sasl.password": "fixed"})
    credentials.keep(Client())
    assert not credentials.change
