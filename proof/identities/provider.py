"""An OpenID Connect provider on the loopback, and a broker that takes its tokens."""

import base64
import json
import ssl
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from math import ceil
from typing import Any, NamedTuple, Self
from urllib.parse import parse_qsl, unquote

from joserfc import jwt
from joserfc.jwk import RSAKey

from dovecote.devstack import Stack
from dovecote.devstack.kafka.kafka import JAVA_OPTIONS
from dovecote.devstack.places import LOOPBACK, free_port

CLIENT, SECRET = "dovecote", "idp-tops3cret of+this/test"
AUDIENCE, KEY_ID = "kafka", "key-of-this-test"
_BEARER = "org.apache.kafka.common.security.oauthbearer"


class Asked(NamedTuple):
    """One request for a token."""

    at: float
    form: Mapping[str, str]
    authorization: str
    status: int


class Provider:
    """Gives clients tokens that live `life` seconds, while `failing` is 0."""

    def __init__(self, life: float, context: ssl.SSLContext | None = None) -> None:
        self.life, self.secret = life, SECRET
        self.failing = 0
        """The status of its answers; 0: it gives tokens."""
        self.answer: tuple[int, bytes] | None = None
        """The status and the body that it answers with in place of a token."""
        self.headers: dict[str, str] = {}
        self.asked: list[Asked] = []
        self._key = RSAKey.generate_key(2048, {"kid": KEY_ID, "use": "sig", "alg": "RS256"})
        self._server = ThreadingHTTPServer((LOOPBACK, 0), self._handler())
        self._server.daemon_threads = True
        self._scheme = "http" if context is None else "https"
        if context is not None:
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    @property
    def url(self) -> str:
        return f"{self._scheme}://{LOOPBACK}:{self._server.server_port}"

    @property
    def given(self) -> list[Asked]:
        """The requests that got a token."""
        return [each for each in self.asked if each.status == HTTPStatus.OK]

    def table(self, **changed: object) -> dict[str, Any]:
        """Return the table of settings for a client of this provider."""
        return {
            "provider": "oidc",
            "token_url": f"{self.url}/token",
            "client_id": CLIENT,
            "client_secret": self.secret,
            "scope": "kafka.write kafka.read",
            **changed,
        }

    def text(self, **changed: object) -> str:
        """Return the table as JSON, as a variable holds it."""
        return json.dumps(self.table(**changed))

    def token(self, client: str = CLIENT) -> str:
        now = time.time()
        claims = {
            "iss": self.url,
            "aud": AUDIENCE,
            "sub": client,
            "iat": int(now),
            "exp": ceil(now + self.life),
            "scope": "kafka.write kafka.read",
        }
        return jwt.encode({"alg": "RS256", "kid": KEY_ID}, claims, self._key)

    def _answer(self, form: Mapping[str, str], authorization: str) -> tuple[int, object]:
        if self.failing:
            return self.failing, {"error": "temporarily_unavailable"}
        client, secret = form.get("client_id", ""), form.get("client_secret", "")
        if authorization.startswith("Basic "):
            pair = base64.b64decode(authorization.removeprefix("Basic ")).decode()
            client, _, secret = (unquote(part) for part in pair.partition(":"))
        if secret != self.secret:
            said = f"client {client} sent a wrong secret"
            return 401, {"error": "invalid_client", "error_description": said}
        if form.get("grant_type") != "client_credentials":
            return 400, {"error": "unsupported_grant_type"}
        token = self.token(client)
        return 200, {"access_token": token, "token_type": "Bearer", "expires_in": int(self.life)}

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        provider = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                keys = {"keys": [provider._key.as_dict(private=False)]}
                self._send(200, json.dumps(keys if self.path == "/jwks" else {}).encode())

            def do_POST(self) -> None:
                size = int(self.headers.get("Content-Length", 0))
                form = dict(parse_qsl(self.rfile.read(size).decode()))
                authorization = self.headers.get("Authorization", "")
                if self.path == "/token":
                    status, answer = provider._answer(form, authorization)
                else:
                    status, answer = 404, {}
                status, body = provider.answer or (status, json.dumps(answer).encode())
                provider.asked.append(Asked(time.time(), form, authorization, status))
                self._send(status, body)

            def _send(self, status: int, body: bytes) -> None:
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                for name, value in provider.headers.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        return Handler


class Guarded(NamedTuple):
    """Servers that let clients in with tokens of `provider`."""

    stack: Stack
    provider: Provider
    bootstrap: str

    def kafka(self, **changed: object) -> dict[str, str]:
        """Return the properties of a client."""
        return {
            "bootstrap.servers": self.bootstrap,
            "security.protocol": "SASL_PLAINTEXT",
            "identity": self.provider.text(**changed),
        }


@contextmanager
def guarded(life: float) -> Iterator[Guarded]:
    """Yield a stack whose tokens live `life` seconds, and whose connections end with them."""
    with Provider(life) as provider:
        bootstrap = f"{LOOPBACK}:{free_port()}"
        jwks = f"{provider.url}/jwks"
        own = "listener.name.tokens.oauthbearer."
        settings = {
            "listeners": f"TOKENS://{bootstrap}",
            "advertised.listeners": f"TOKENS://{bootstrap}",
            "listener.security.protocol.map": (
                "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,TOKENS:SASL_PLAINTEXT"
            ),
            "listener.name.tokens.sasl.enabled.mechanisms": "OAUTHBEARER",
            f"{own}sasl.jaas.config": f"{_BEARER}.OAuthBearerLoginModule required;",
            f"{own}sasl.server.callback.handler.class": (
                f"{_BEARER}.OAuthBearerValidatorCallbackHandler"
            ),
            f"{own}sasl.oauthbearer.jwks.endpoint.url": jwks,
            f"{own}sasl.oauthbearer.expected.audience": AUDIENCE,
            f"{own}sasl.oauthbearer.expected.issuer": provider.url,
            # A token that has expired is let in by default for half a minute.
            f"{own}sasl.oauthbearer.clock.skew.seconds": "0",
        }
        allowed = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={jwks}"
        with Stack(fsync=False, kafka=settings, kafka_java=[*JAVA_OPTIONS, allowed]) as stack:
            yield Guarded(stack, provider, bootstrap)
