"""Standard Webhooks signatures: `v1` (HMAC-SHA256) and `v1a` (ed25519), one for each secret."""

from base64 import b64encode
from binascii import b2a_base64
from collections.abc import Callable, Iterable
from hashlib import sha256
from typing import Literal, TypeAlias

Key: TypeAlias = tuple[Literal["v1", "v1a"], bytes]
"""The kind of signature, and the secret's bytes: for `v1a` the seed of the private key."""

_Sign: TypeAlias = Callable[[bytes], bytes]

_BLOCK = 64


class Signer:
    """Signs requests with each of its keys: the old one and the new while a secret is replaced."""

    def __init__(self, keys: Iterable[Key]) -> None:
        self._signs = [(kind, _signing(kind, secret)) for kind, secret in keys]

    def headers(self, id_: str, timestamp: int, body: bytes) -> list[tuple[str, str]]:
        """Return the headers of one attempt at `timestamp`, in seconds since 1970."""
        told = [("webhook-id", id_), ("webhook-timestamp", str(timestamp))]
        if self._signs:
            told.append(("webhook-signature", self.signature(id_, timestamp, body)))
        return told

    def lines(self, id_: str, timestamp: int, body: bytes) -> str:
        """Return these headers as they are sent; `id_` is one that `webhook_id` has encoded."""
        told = f"webhook-id: {id_}\r\nwebhook-timestamp: {timestamp}\r\n"
        if self._signs:
            told += f"webhook-signature: {self.signature(id_, timestamp, body)}\r\n"
        return told

    def signature(self, id_: str, timestamp: int, body: bytes) -> str:
        """Return the signatures of `{id}.{timestamp}.{body}`, separated by blanks."""
        content = b"%b.%d.%b" % (id_.encode(), timestamp, body)
        signatures = [
            f"{kind},{b2a_base64(sign(content), newline=False).decode('ascii')}"
            for kind, sign in self._signs
        ]
        return " ".join(signatures)


def _signing(kind: Literal["v1", "v1a"], secret: bytes) -> _Sign:
    if kind == "v1":
        return _hmac_sha256(secret)
    # Subscriptions that sign with `v1` alone do not need this library.
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    return Ed25519PrivateKey.from_private_bytes(secret).sign


def _hmac_sha256(secret: bytes) -> _Sign:
    """
    Return RFC 2104's HMAC with its key prepared once.

    `hmac` would prepare the key, and release the interpreter, at each request.
    """
    key = (secret if len(secret) <= _BLOCK else sha256(secret).digest()).ljust(_BLOCK, b"\0")
    inner, outer = (
        sha256(bytes(each ^ 0x36 for each in key)),
        sha256(bytes(each ^ 0x5C for each in key)),
    )

    def sign(content: bytes) -> bytes:
        first, last = inner.copy(), outer.copy()
        first.update(content)
        last.update(first.digest())
        return last.digest()

    return sign


def public_key(seed: bytes) -> str:
    """Return the key with which receivers verify `v1a`: `whpk_…`."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    public = Ed25519PrivateKey.from_private_bytes(seed).public_key().public_bytes_raw()
    return f"whpk_{b64encode(public).decode('ascii')}"
