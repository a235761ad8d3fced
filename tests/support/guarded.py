"""A Kafka that lets users do only what they are granted, with the rights that a page lists."""

import re
import shutil
import ssl
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import NamedTuple

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # imported there, not declared
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourcePatternType,
    ResourceType,
)
from confluent_kafka.cimpl import NewTopic

from dovecote.devstack import Stack
from dovecote.devstack.places import LOOPBACK, free_port, temporary_directory
from dovecote.devstack.postgres.postgres import server_user
from tests.support.certificates import Certificates, certificates
from tests.support.waiting import patient

_KINDS = {
    "topic": ResourceType.TOPIC,
    "group": ResourceType.GROUP,
    "transactional id": ResourceType.TRANSACTIONAL_ID,
    "cluster": ResourceType.BROKER,
}


class Right(NamedTuple):
    """An operation that a user may do on a resource of Kafka."""

    operation: str
    kind: str
    name: str
    prefixed: bool = False

    @property
    def said(self) -> str:
        """Return the right as errors of Dovecote name it."""
        return f"`{self.operation}` on {self.kind} {self.name!r}"

    def binding(self, user: str) -> AclBinding:
        """Return what grants it to a user."""
        return AclBinding(
            _KINDS[self.kind],
            self.name,
            ResourcePatternType.PREFIXED if self.prefixed else ResourcePatternType.LITERAL,
            f"User:{user}",
            "*",
            AclOperation[re.sub(r"(?<!^)(?=[A-Z])", "_", self.operation).upper()],
            AclPermissionType.ALLOW,
        )


_ROW = re.compile(
    r"^\| (?P<part>[^|]+) \| `(?P<operation>\w+)` \| (?P<kind>[a-z ]+) `(?P<name>[^`]+)`"
    r"(?P<prefixed>, prefixed)?(?: \([^)|]+\))? \| (?P<without>[^|]+) \|$",
    re.MULTILINE,
)


def listed(part: str, **names: str) -> dict[Right, bool]:
    """
    Return the rights of a part from docs/security.md, and whether it needs each one.

    `names` fill in what the page leaves open, with underscores for spaces and dashes.
    """
    text = (Path(__file__).parents[2] / "docs/security.md").read_text(encoding="utf-8")
    found: dict[Right, bool] = {}
    for row in _ROW.finditer(text):
        if row["part"].replace("`", "") == part:
            name = re.sub(r"<([^>]+)>", lambda m: names[re.sub(r"[ -]", "_", m[1])], row["name"])
            right = Right(row["operation"], row["kind"], name, bool(row["prefixed"]))
            found[right] = not row["without"].startswith("goes on")
    assert found, f"docs/security.md lists no rights of {part!r}"
    return found


@dataclass(frozen=True)
class Guarded:
    """The servers, and how a user of Kafka gets in."""

    stack: Stack
    address: str
    trusted: Certificates
    _numbers: Iterator[int]

    def client(self, rights: Iterable[Right] = (), user: str = "") -> dict[str, str]:
        """Return the properties of a new user that has these rights and no others."""
        user = user or f"user{next(self._numbers)}"
        self.grant(user, rights)
        certificate, key = self.trusted.client(user)
        return {
            "bootstrap.servers": self.address,
            "security.protocol": "SSL",
            "ssl.ca.location": str(self.trusted.authority),
            "ssl.certificate.location": str(certificate),
            "ssl.key.location": str(key),
        }

    def grant(self, user: str, rights: Iterable[Right]) -> None:
        admin = self.admin  # kept until it has answered
        if wanted := [each.binding(user) for each in rights]:
            for made in admin.create_acls(wanted).values():
                made.result(patient(30))

    def create(self, topic: str) -> None:
        """Create a topic, if it is not there."""
        admin = self.admin
        for made in admin.create_topics([NewTopic(topic, 1, 1)]).values():
            try:
                made.result(patient(30))
            except KafkaException as error:
                if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise

    def renew(self) -> None:
        """Give the broker another certificate and key, as an operator would: without a restart."""
        self.trusted.renew()
        listener = "listener.name.guarded.ssl.keystore.location"
        entry = ConfigEntry(
            listener, str(self.trusted.both), incremental_operation=AlterConfigOpType.SET
        )
        broker = ConfigResource(ConfigResource.Type.BROKER, "1", incremental_configs=[entry])
        admin = self.admin
        for made in admin.incremental_alter_configs([broker]).values():
            made.result(patient(30))

    def certificate(self) -> str:
        """Return the certificate that the broker shows now."""
        host, _, port = self.address.partition(":")
        return ssl.get_server_certificate((host, int(port)), timeout=patient(10))

    @property
    def admin(self) -> AdminClient:
        """A client that may do anything."""
        return AdminClient({"bootstrap.servers": self.stack.kafka.bootstrap})


@contextmanager
def guarded() -> Iterator[Guarded]:
    """Start servers whose Kafka asks clients for certificates, and refuses what is not granted."""
    folder = temporary_directory(server_user())
    own, port = certificates(folder), free_port()
    listener = f"GUARDED://{LOOPBACK}:{port}"
    kafka = {
        "listeners": listener,
        "advertised.listeners": listener,
        "listener.security.protocol.map": ("CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,GUARDED:SSL"),
        "listener.name.guarded.ssl.keystore.type": "PEM",
        "listener.name.guarded.ssl.keystore.location": str(own.both),
        "listener.name.guarded.ssl.truststore.type": "PEM",
        "listener.name.guarded.ssl.truststore.location": str(own.authority),
        "listener.name.guarded.ssl.client.auth": "required",
        "listener.name.guarded.ssl.principal.mapping.rules": "RULE:^CN=(.*)$/$1/",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
    try:
        with Stack(fsync=False, kafka=kafka) as stack:
            yield Guarded(stack, f"{LOOPBACK}:{port}", own, count())
    finally:
        shutil.rmtree(folder)


def each_without(rights: Mapping[Right, bool]) -> dict[Right, list[Right]]:
    """Return, for each right that is needed, all the others."""
    return {
        missing: [right for right in rights if right != missing]
        for missing, needed in rights.items()
        if needed
    }
