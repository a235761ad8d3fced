"""Choose a version of a server, from those that the stack can run."""

import os
from collections.abc import Mapping
from dataclasses import dataclass

from dovecote.devstack.errors import OtherVersion, UnknownVersion


@dataclass(frozen=True, slots=True)
class Versions:
    """The versions of one server."""

    server: str
    revisions: Mapping[str, str]
    """The full version of each, the oldest first."""

    usual: str
    """The version for all that is not about versions."""

    variable: str
    """Names another default in the environment."""

    @property
    def default(self) -> str:
        """The version that is run where nobody asks for one."""
        return self.choose(os.environ.get(self.variable)) or self.usual

    def choose(self, asked: str | None) -> str | None:
        """
        Return the version of `revisions` that is meant by `asked`, such as `15` or `15.19`.

        Raises:
            UnknownVersion: there is none; the message lists all.
        """
        if not asked:
            return None
        for version, revision in self.revisions.items():
            # `4` alone would be two versions of Kafka.
            if asked.startswith(version) and f"{revision}.".startswith(f"{asked}."):
                return version
        msg = f"there is no {self.server} {asked} here; there are {', '.join(self.revisions)}"
        raise UnknownVersion(msg)

    def of_data(self, folder: object, kept: str | None, asked: str | None) -> str:
        """
        Return the version to run in `folder`, whose data was made by the version `kept`.

        Raises:
            UnknownVersion: `asked` is not one of them.
            OtherVersion: the data belongs to another one than `asked`.
        """
        wanted = self.choose(asked)
        if kept is None:
            return wanted or self.default
        if wanted not in {None, kept}:
            msg = (
                f"the data in {folder} is of {self.server} {kept}, not {wanted}; "
                "give the other one a --directory of its own"
            )
            raise OtherVersion(msg)
        if kept not in self.revisions:
            msg = (
                f"the data in {folder} is of {self.server} {kept}; "
                f"there are {', '.join(self.revisions)} here"
            )
            raise OtherVersion(msg)
        return kept


POSTGRES = Versions(
    "Postgres",
    {"14": "14.20.0", "15": "15.19.0", "16": "16.15.0", "17": "17.11.0", "18": "18.4"},
    "18",
    "DOVECOTE_STACK_POSTGRES",
)
"""The last one comes with the wheel; the others come from Maven."""

KAFKA = Versions(
    "Kafka",
    {"3.7": "3.7.2", "3.9": "3.9.2", "4.2": "4.2.0", "4.4": "4.4.0"},
    "4.2",
    "DOVECOTE_STACK_KAFKA",
)
