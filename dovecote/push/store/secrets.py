"""Secrets of subscriptions: sealed for the database, or looked up in variables and files."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from pydantic import SecretStr

from dovecote.push.errors import RequestRefused
from dovecote.push.rules.subscription.fields import reference
from dovecote.push.rules.subscription.subscription import Subscription, subscription
from outbox.errors import BadSettings

_FILE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,200}")


class Keys:
    """The keys that seal secrets: the first one seals, each unseals."""

    def __init__(self, text: str) -> None:
        """
        Split keys at spaces, newest first.

        Raises:
            BadSettings: one is not a Fernet key.
        """
        try:
            self._keys = [Fernet(each) for each in text.split()]
        except ValueError:
            msg = (
                "secrets.keys: not Fernet keys, 32 bytes in URL-safe base64 each; "
                "`dovecote push key` makes one"
            )
            raise BadSettings(msg) from None

    def seal(self, text: str) -> str:
        """
        Seal `text` so that only holders of a key can read it.

        Raises:
            RequestRefused: there are no keys.
        """
        if not self._keys:
            msg = (
                "secrets cannot be kept: set secrets.keys (`dovecote push key` makes one), or "
                "give env:NAME or file:NAME in the secret's place"
            )
            raise RequestRefused(msg)
        return MultiFernet(self._keys).encrypt(text.encode()).decode()

    def unseal(self, token: str) -> str:
        """
        Return the sealed text.

        Raises:
            ValueError: none of the keys has sealed it.
        """
        if self._keys:
            try:
                return MultiFernet(self._keys).decrypt(token.encode()).decode()
            except InvalidToken:
                pass
        msg = "is sealed with a key that is not in secrets.keys"
        raise ValueError(msg)

    def is_current(self, token: str) -> bool:
        """Return whether the newest key sealed it."""
        try:
            self._keys[0].decrypt(token.encode())
        except (InvalidToken, IndexError):
            return False
        return True


@dataclass(frozen=True, slots=True)
class References:
    """Where `env:NAME` and `file:NAME` may point: otherwise subscribers could read everything."""

    environ: Mapping[str, str]
    prefix: str
    """`env:NAME` is the variable PREFIXNAME."""
    directory: Path | None
    """`file:NAME` is the file NAME in here; None: there are no such secrets."""

    def resolve(self, text: str) -> str:
        """
        Return the secret that `text` refers to, or `text` itself if it is not a reference.

        Raises:
            ValueError: there is no such secret; the message says where it was expected.
        """
        found = reference(SecretStr(text))
        if found is None:
            return text
        kind, name = found
        if kind == "env":
            variable = self.prefix + name
            if variable not in self.environ:
                msg = f"environment variable {variable} is not set"
                raise ValueError(msg)
            return self.environ[variable]
        return self._read(name)

    def _read(self, name: str) -> str:
        if self.directory is None:
            msg = "file:NAME needs secrets.directory in the settings"
            raise ValueError(msg)
        if not _FILE.fullmatch(name):
            msg = "file:NAME is the name of a file, without its directory"
            raise ValueError(msg)
        try:
            return (self.directory / name).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            what = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
            msg = f"cannot read {self.directory / name}: {what}"
            raise ValueError(msg) from None

    def resolved(self, found: Subscription) -> Subscription:
        """
        Return a subscription with its references replaced by the secrets.

        Raises:
            ValidationError: a secret is missing, or not valid.
        """
        plainly: Callable[[str], str] = str
        data = found.model_dump(mode="json", context={"seal": plainly})
        return subscription(data, unseal=plainly, resolve=self.resolve)
