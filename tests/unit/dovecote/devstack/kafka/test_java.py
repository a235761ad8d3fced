import datetime as dt
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, pkcs12
from cryptography.x509.oid import NameOID

from dovecote.devstack.errors import JavaMissing
from dovecote.devstack.kafka import java_wheel
from dovecote.devstack.kafka.java import java
from dovecote.devstack.kafka.java_wheel import trust_store

WHEEL = Path(str(java_wheel.home())) / "bin/java"


def fake_java(home: Path, version: str, *, status: int = 0) -> Path:
    """Make a program in `home` that describes itself like `java`."""
    executable = home / "bin/java"
    executable.parent.mkdir(parents=True)
    executable.write_text(
        f'#!/bin/sh\necho "    java.home = {home}"\n'
        f'echo "    java.specification.version = {version}"\nexit {status}\n'
    )
    executable.chmod(0o755)
    return executable


def environ(tmp_path: Path, **more: str) -> Mapping[str, str]:
    return {"PATH": str(tmp_path / "nothing"), **more}


def certificate(name: str) -> bytes:
    key = ec.generate_private_key(ec.SECP256R1())
    subject_name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = dt.datetime.now(dt.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject_name)
        .issuer_name(subject_name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now)
        .not_valid_after(now + dt.timedelta(days=1))
        .sign(key, hashes.SHA256())
        .public_bytes(Encoding.PEM)
    )


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOVECOTE_CACHE", str(tmp_path / "cache"))


def test_java_home_comes_before_the_path(tmp_path: Path) -> None:
    at_home = fake_java(tmp_path / "home", "17")
    on_path = fake_java(tmp_path / "other", "21")

    found = java({"JAVA_HOME": str(tmp_path / "home"), "PATH": str(on_path.parent)})

    assert (found.executable, found.home, found.options) == (at_home, tmp_path / "home", ())


def test_a_java_home_that_is_too_old_gives_way_to_the_path(tmp_path: Path) -> None:
    fake_java(tmp_path / "home", "1.8")
    on_path = fake_java(tmp_path / "other", "21")

    found = java({"JAVA_HOME": str(tmp_path / "home"), "PATH": str(on_path.parent)})

    assert found.executable == on_path


def test_the_wheel_serves_where_the_system_has_no_java(tmp_path: Path) -> None:
    found = java(environ(tmp_path))

    assert found.executable == WHEEL
    assert found.executable.is_file()


def test_the_wheel_serves_where_the_systems_java_does_not_run(tmp_path: Path) -> None:
    fake_java(tmp_path / "home", "17", status=1)

    assert java(environ(tmp_path, JAVA_HOME=str(tmp_path / "home"))).executable == WHEEL


def test_the_wheel_can_be_asked_for(tmp_path: Path) -> None:
    fake_java(tmp_path / "home", "21")

    found = java(environ(tmp_path, JAVA_HOME=str(tmp_path / "home"), DOVECOTE_JAVA="wheel"))

    assert found.executable == WHEEL


def test_without_any_java_the_error_says_what_was_looked_at(tmp_path: Path) -> None:
    old = fake_java(tmp_path / "home", "11")

    with pytest.raises(JavaMissing, match=f"no Java >= 17 found: {old} is Java 11"):
        java(environ(tmp_path, JAVA_HOME=str(tmp_path / "home"), DOVECOTE_JAVA="system"))


def test_a_missing_wheel_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java_wheel, "NAME", "no_such_wheel")

    with pytest.raises(JavaMissing, match=r"no_such_wheel is not installed \(pip install"):
        java(environ(tmp_path))


def test_a_choice_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    with pytest.raises(JavaMissing, match="`system`, `wheel` or absent, not 'jdk'"):
        java(environ(tmp_path, DOVECOTE_JAVA="jdk"))


def test_the_wheel_trusts_what_ssl_cert_file_trusts(tmp_path: Path) -> None:
    bundle = tmp_path / "bundle.pem"
    bundle.write_bytes(certificate("one") + certificate("two"))

    found = java(environ(tmp_path, SSL_CERT_FILE=str(bundle)))

    store = trust_store(bundle)
    assert f"-Djavax.net.ssl.trustStore={store}" in found.options
    held = pkcs12.load_pkcs12(store.read_bytes(), b"changeit").additional_certs
    names = {held_one.certificate.subject.rfc4514_string() for held_one in held}
    assert names == {"CN=one", "CN=two"}


def test_a_trust_store_is_made_once_per_content(tmp_path: Path) -> None:
    bundle = tmp_path / "bundle.pem"
    bundle.write_bytes(certificate("one"))
    first = trust_store(bundle)
    made = first.stat().st_ino

    assert trust_store(bundle) == first
    assert first.stat().st_ino == made
    bundle.write_bytes(certificate("one, renewed"))
    assert trust_store(bundle) != first


def test_a_bundle_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(JavaMissing, match=r"SSL_CERT_FILE names .*/none.pem, which cannot be"):
        java(environ(tmp_path, SSL_CERT_FILE=str(tmp_path / "none.pem")))


def test_a_bundle_without_certificates_is_named(tmp_path: Path) -> None:
    bundle = tmp_path / "bundle.pem"
    bundle.write_text("no certificate")

    with pytest.raises(JavaMissing, match=r"bundle\.pem, which holds no PEM certificate"):
        java(environ(tmp_path, SSL_CERT_FILE=str(bundle)))


def test_a_certificate_that_cannot_be_read_costs_no_other_its_trust(tmp_path: Path) -> None:
    bundle = tmp_path / "bundle.pem"
    broken = b"-----BEGIN CERTIFICATE-----\nMIIH\n-----END CERTIFICATE-----\n"
    bundle.write_bytes(broken + certificate("good"))

    held = pkcs12.load_pkcs12(trust_store(bundle).read_bytes(), b"changeit").additional_certs

    assert [one.certificate.subject.rfc4514_string() for one in held] == ["CN=good"]


def test_programs_that_start_java_themselves_are_told_by_java_home(tmp_path: Path) -> None:
    system = java({"PATH": str(fake_java(tmp_path / "home", "17").parent)})
    wheel = java(environ(tmp_path))

    assert system.environment() == {"JAVA_HOME": str(tmp_path / "home")}
    assert wheel.environment() == {"JAVA_HOME": str(wheel.home)}
    assert java(environ(tmp_path, **wheel.environment())).home == wheel.home


def test_the_wheels_java_home_trusts_the_same_and_forgives_the_module_it_lacks(
    tmp_path: Path,
) -> None:
    bundle = tmp_path / "bundle.pem"
    bundle.write_bytes(certificate("one"))
    wheel = java(environ(tmp_path, SSL_CERT_FILE=str(bundle)))

    told = subprocess.run(
        [
            str(wheel.home / "bin/java"),
            "--add-modules=jdk.incubator.vector",
            "-Dsome.words=with a space",
            "-XshowSettings:properties",
            "-version",
        ],
        stderr=subprocess.PIPE,
        text=True,
        check=True,
    )

    assert f"javax.net.ssl.trustStore = {trust_store(bundle)}\n" in told.stderr
    assert "some.words = with a space\n" in told.stderr
