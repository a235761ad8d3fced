"""Where secrets come from that others replace: files, commands, and tokens of AWS."""

import math
import os
import selectors
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Hashable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

SECONDS = 15.0
"""How long a command may take."""

EVERY_SECONDS = 300.0
"""How long its output is used, unless the settings say otherwise."""

_MOST_BYTES, _MOST_SAID, _LONGEST_LINE = 65_536, 4_096, 300
# A server that refuses the same secret again and again makes us ask less and less often.
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 5.0
# AWS accepts a token for 15 minutes.
_TOKEN_SECONDS = 600.0


@dataclass(frozen=True, slots=True)
class FileText:
    """The text of a file, without space around it."""

    path: Path
    travels: ClassVar[bool] = True

    def __call__(self, *, anew: bool = False) -> str:  # noqa: ARG002  # nothing is kept
        """
        Return it as it is now.

        Raises:
            ValueError: it cannot be read, or has a NUL: its text is perhaps still being written.
        """
        try:
            text = self.path.read_text(encoding="utf-8").strip()
        except OSError as error:
            msg = f"cannot read {self.path}: {error.strerror}"
            raise ValueError(msg) from error
        except UnicodeDecodeError:
            msg = f"{self.path} is not UTF-8 text"
            raise ValueError(msg) from None
        if "\0" in text:
            msg = f"{self.path} has a NUL character, which no secret has"
            raise ValueError(msg)
        return text


@dataclass(frozen=True, slots=True)
class CommandText:
    """The output of a command, without its last line end; kept for `every` seconds."""

    words: tuple[str, ...]
    every: float = EVERY_SECONDS
    travels: ClassVar[bool] = True

    def __call__(self, *, anew: bool = False) -> str:
        """
        Return what it prints, or what it has printed.

        Raises:
            ValueError: it failed; the message has the last line of its standard error.
        """
        return _kept(self.words, self.every, lambda: _output(self.words), anew=anew)


@dataclass(frozen=True, slots=True)
class RdsToken:
    """A token with which a user of AWS may connect to a server of RDS or Aurora."""

    host: str
    port: int
    user: str
    region: str | None = None
    profile: str | None = None
    travels: ClassVar[bool] = True

    def __call__(self, *, anew: bool = False) -> str:
        """
        Return one that is at most ten minutes old, signed by the credentials of this process.

        Raises:
            ValueError: boto3 is not installed, or finds no credentials or region.
        """
        return _kept(self, _TOKEN_SECONDS, self._signed, anew=anew)

    def _signed(self) -> str:
        try:
            import boto3  # type: ignore[import-untyped,unused-ignore]  # it may not be there
            from botocore.exceptions import (  # type: ignore[import-untyped,unused-ignore]  # as above
                BotoCoreError,
                ClientError,
            )
        except ImportError:
            msg = "aws-rds needs boto3: pip install 'dovecote[aws]'"
            raise ValueError(msg) from None
        try:
            session = boto3.Session(profile_name=self.profile, region_name=self.region)
            token: str = session.client("rds").generate_db_auth_token(
                self.host, self.port, self.user, self.region
            )
        except (BotoCoreError, ClientError, ValueError) as error:
            msg = f"aws-rds: {' '.join(str(error).split())}"
            raise ValueError(msg) from error
        return token


@dataclass(slots=True)
class _Kept:
    """The last result, and when somebody last asked for a new one."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    text: str | None = None
    at: float = -math.inf
    error: str = ""
    asked_at: float = -math.inf
    pause: float = _FIRST_PAUSE


_known: dict[Hashable, _Kept] = {}


def _forget() -> None:
    _known.clear()  # another thread of the parent may have held a lock


os.register_at_fork(after_in_child=_forget)


def _kept(key: Hashable, every: float, make: Callable[[], str], *, anew: bool) -> str:
    """Return what `make` returned last, unless that is too old; one thread at a time asks."""
    kept = _known.setdefault(key, _Kept())
    with kept.lock:
        now = time.monotonic()
        if kept.text is not None and not anew and now - kept.at < every:
            return kept.text
        if now - kept.asked_at < kept.pause and (anew or kept.error):
            if kept.text is None or kept.error:
                raise ValueError(kept.error)
            return kept.text
        was, kept.error = kept.text, ""
        again = anew and now - kept.asked_at < 2 * _LONGEST_PAUSE
        try:
            kept.text = make()
            kept.at = time.monotonic()
        except ValueError as error:
            kept.error = str(error)
            raise
        finally:
            kept.asked_at = time.monotonic()
            is_same = again and kept.text == was
            kept.pause = min(2 * kept.pause, _LONGEST_PAUSE) if is_same else _FIRST_PAUSE
        return kept.text


def _output(words: tuple[str, ...]) -> str:
    """
    Run a command without a shell, and return what it prints.

    Raises:
        ValueError: it cannot be run, takes too long, fails, or prints no secret.
    """
    name = words[0]
    try:
        # A session of its own, so that all that it starts can be ended together.
        process = subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except OSError as error:
        msg = f"cannot run {name}: {error.strerror}"
        raise ValueError(msg) from None
    except ValueError:
        msg = f"cannot run {name[:100]!r}: a word of the command has a NUL character"
        raise ValueError(msg) from None
    try:
        out, said = _read(process)
        status = 0 if len(out) > _MOST_BYTES else process.wait(SECONDS)
    except (TimeoutError, subprocess.TimeoutExpired):
        msg = f"{name} took longer than {SECONDS:.0f} s, and was ended"
        raise ValueError(msg) from None
    finally:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        for pipe in (process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()
    if status:
        why = f"status {status}" if status > 0 else f"signal {-status}"
        line = (said.decode(errors="replace").strip().splitlines() or ["it says nothing"])[-1]
        msg = f"{name} failed ({why}): {line[:_LONGEST_LINE]}"
        raise ValueError(msg)
    return _secret(name, out)


def _secret(name: str, out: bytes) -> str:
    if len(out) > _MOST_BYTES:
        msg = f"{name} prints more than {_MOST_BYTES} bytes, which is no secret"
        raise ValueError(msg)
    try:
        text = out.decode()
    except UnicodeDecodeError:
        msg = f"{name} does not print UTF-8 text"
        raise ValueError(msg) from None
    text = text.removesuffix("\n").removesuffix("\r")
    if not text:
        msg = f"{name} prints nothing"
        raise ValueError(msg)
    if "\0" in text:
        msg = f"{name} prints a NUL character, which no secret has"
        raise ValueError(msg)
    return text


def _read(process: "subprocess.Popen[bytes]") -> tuple[bytes, bytes]:
    """
    Return the output, up to a little more than a secret may have, and the end of the errors.

    Raises:
        TimeoutError: a pipe is still open when the time is over.
    """
    deadline, out, said = time.monotonic() + SECONDS, b"", b""
    with selectors.DefaultSelector() as selector:
        for pipe in (process.stdout, process.stderr):
            if pipe is not None:
                selector.register(pipe, selectors.EVENT_READ)
        while selector.get_map():
            if (left := deadline - time.monotonic()) <= 0:
                raise TimeoutError
            for key, _ in selector.select(left):
                found = os.read(key.fd, _MOST_SAID)
                if not found:
                    selector.unregister(key.fileobj)
                elif key.fileobj is process.stderr:
                    said = (said + found)[-_MOST_SAID:]
                else:
                    out += found
                    if len(out) > _MOST_BYTES:
                        return out, said
    return out, said
