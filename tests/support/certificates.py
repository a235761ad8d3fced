"""Certificates for servers on the loopback, signed by an authority that the test creates."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from dovecote.devstack.places import LOOPBACK


class Certificates(NamedTuple):
    """
    Files in PEM: the authority, a server's certificate and key, and the latter two in one file.
    """

    authority: Path
    certificate: Path
    key: Path
    both: Path
    authority_key: Path

    def client(self, name: str) -> tuple[Path, Path]:
        """Return the certificate and the key of a client that the authority knows by `name`."""
        return self._issued(name, name, self.authority.parent / f"{name}.key")

    def renew(self) -> None:
        """Give the server another certificate and another key, in the same files."""
        certificate, key = self._issued("server", "renewed", self.authority.parent / "renewed.key")
        new = self.both.with_suffix(".new")
        new.touch(mode=0o600)
        new.write_bytes(key.read_bytes() + certificate.read_bytes())
        new.replace(self.both)
        certificate.replace(self.certificate)
        key.replace(self.key)

    def _issued(self, subject: str, name: str, key_file: Path) -> tuple[Path, Path]:
        authority = x509.load_pem_x509_certificate(self.authority.read_bytes())
        issuer_key = serialization.load_pem_private_key(self.authority_key.read_bytes(), None)
        assert isinstance(issuer_key, ec.EllipticCurvePrivateKey)
        key = ec.generate_private_key(ec.SECP256R1())
        file = self.authority.parent / f"{name}.pem"
        made = _signed(subject, key, authority, issuer_key)
        file.write_bytes(made.public_bytes(serialization.Encoding.PEM))
        _keep(key_file, _private(key))
        return file, key_file


def certificates(folder: Path) -> Certificates:
    """Create an authority and a server certificate for the loopback address in `folder`."""
    authority_key, server_key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    authority = _signed(f"authority in {folder.name}", authority_key, None, authority_key)
    server = _signed("server", server_key, authority, authority_key)
    names = ("ca.pem", "server.pem", "key.pem", "both", "ca.key")
    files = Certificates(*(folder / name for name in names))
    key = _private(server_key)
    public = server.public_bytes(serialization.Encoding.PEM)
    files.authority.write_bytes(authority.public_bytes(serialization.Encoding.PEM))
    files.certificate.write_bytes(public)
    _keep(files.key, key)
    _keep(files.both, key + public)
    _keep(files.authority_key, _private(authority_key))
    return files


def half_renewed(folder: Path) -> tuple[dict[str, str], Callable[[], object]]:
    """
    Return properties of a client that has a new certificate and an old key, and what mends that.

    No broker is at its address.
    """
    issued = certificates(folder)
    (certificate, new), (_, key) = issued.client("new"), issued.client("old")
    properties = {
        "bootstrap.servers": f"{LOOPBACK}:9",
        "security.protocol": "ssl",
        "ssl.certificate.location": str(certificate),
        "ssl.key.location": str(key),
    }
    return properties, lambda: new.replace(key)


def _private(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def _keep(file: Path, content: bytes) -> None:
    file.touch(mode=0o600)
    file.write_bytes(content)


def _signed(
    name: str,
    key: ec.EllipticCurvePrivateKey,
    issuer: x509.Certificate | None,
    issuer_key: ec.EllipticCurvePrivateKey,
) -> x509.Certificate:
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer.subject if issuer else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=issuer is None, path_length=None), critical=True)
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(IPv4Address(LOOPBACK))]), critical=False
        )
        .sign(issuer_key, hashes.SHA256())
    )
