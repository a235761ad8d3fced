"""Say who a caller is, by its token, and what it may do."""

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass

from dovecote.console.asked import ConsoleError
from dovecote.console.settings import AccessRight, ConsoleTokenSettings

LOCAL = "local"
"""The name of every caller where no token is set, on this machine alone."""


@dataclass(frozen=True, slots=True)
class Guest:
    """One caller."""

    name: str
    rights: frozenset[AccessRight]
    needs_token: bool

    def require(self, right: AccessRight) -> None:
        """
        Check that the caller has a right.

        Raises:
            ConsoleError: it has not; 403.
        """
        if right in self.rights:
            return
        if right == "write" and not self.needs_token:
            todo = "set `write = true` in the console's table [console], and start it again"
        else:
            todo = f"use a token with the right {right}, in the console's table [console.tokens]"
        what = "nothing is changed here" if right == "write" else "nothing is shown here"
        msg = f"{self.name} lacks the right {right}: {what}"
        raise ConsoleError(403, msg, todo)


class Door:
    """Knows the tokens; without any, everybody who can connect is let in."""

    def __init__(self, tokens: Mapping[str, ConsoleTokenSettings], *, write: bool) -> None:
        self._tokens = [
            (each.sha256.encode(), Guest(name, self._allowed(each.rights, write=write), True))  # noqa: FBT003  # a field
            for name, each in tokens.items()
        ]
        rights: tuple[AccessRight, ...] = ("read", "write") if write else ("read",)
        self._local = Guest(LOCAL, frozenset(rights), needs_token=False)

    def guest(self, authorization: str) -> Guest:
        """
        Return the caller with this header.

        Raises:
            ConsoleError: the token is missing or unknown; 401.
        """
        if not self._tokens:
            return self._local
        scheme, _, token = authorization.partition(" ")
        given = f"sha256:{hashlib.sha256(token.strip().encode()).hexdigest()}".encode()
        # All are compared, so that the time does not show which one matched.
        found = [guest for digest, guest in self._tokens if hmac.compare_digest(given, digest)]
        if scheme.lower() != "bearer" or not found:
            msg = "the token is missing or unknown"
            todo = "send Authorization: Bearer … with a token of the console"
            raise ConsoleError(401, msg, todo)
        return found[0]

    @staticmethod
    def _allowed(rights: tuple[AccessRight, ...], *, write: bool) -> frozenset[AccessRight]:
        return frozenset(each for each in rights if write or each != "write")
