"""Ask an OpenID Connect provider for tokens, with the credentials of a client (RFC 6749, 4.4)."""

import base64
import json
import ssl
import time
from collections.abc import Mapping
from http.client import HTTPException, HTTPResponse
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlencode, urlsplit
from urllib.request import HTTPRedirectHandler, HTTPSHandler, Request, build_opener

from outbox.tokens.token import Ask, Token, TokenRefused, claims

_SECONDS = 10.0
_MOST_BYTES = 1_000_000
_MOST_SAID = 200
_DIGITS = 15
# The request itself is wrong, so that another one would be answered in the same way.
_REFUSED = frozenset({400, 401, 403, 404, 405})
_HERE = frozenset({"localhost", "127.0.0.1", "::1"})


class _NoRedirect(HTTPRedirectHandler):
    """Follows no redirect: a secret goes to the address of the settings alone."""

    def redirect_request(self, *_: Any, **__: Any) -> None:  # noqa: ANN401  # urllib's own
        return None


def oidc(options: Mapping[str, Any]) -> Ask:
    """
    Return the provider for a table of settings.

    Raises:
        ValueError: a setting cannot work; the message names it.
    """
    url, method = options["token_url"], options.get("auth", "basic")
    parts = urlsplit(url)
    if parts.scheme not in {"https", "http"} or not parts.hostname or parts.username:
        msg = f"token_url {url!r} is no address, such as https://id.example.com/oauth2/token"
        raise ValueError(msg)
    if parts.scheme == "http" and parts.hostname not in _HERE:
        msg = "token_url must begin with https://: the secret would be sent in the clear"
        raise ValueError(msg)
    if method not in {"basic", "post"}:
        msg = f"auth {method!r} is neither `basic` nor `post`"
        raise ValueError(msg)
    context = _context(options.get("ca_file"))
    opener = build_opener(_NoRedirect, HTTPSHandler(context=context))

    def ask() -> Token:
        began = time.time()
        request = _request(options)
        try:
            with opener.open(request, timeout=_SECONDS) as response:
                answer = _json(response)
        except HTTPError as error:
            with error:
                said = _said(error)
            text = f"HTTP {error.code}{said}"
            if error.code in _REFUSED:
                raise TokenRefused(text) from None
            raise OSError(text) from None
        except URLError as error:
            msg = f"{parts.netloc} does not answer: {error.reason}"
            raise OSError(msg) from None
        except HTTPException as error:
            msg = f"{parts.netloc} answers no HTTP: {type(error).__name__}"
            raise OSError(msg) from None
        return _token(answer, began, options)

    return ask


def _context(ca_file: str | None) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=ca_file)
    except (OSError, ssl.SSLError) as error:
        msg = f"ca_file {ca_file}: {getattr(error, 'strerror', None) or 'holds no certificate'}"
        raise ValueError(msg) from None


def _request(options: Mapping[str, Any]) -> Request:
    """Return the request for one token."""
    known, secret = str(options["client_id"]), str(options["client_secret"])
    form = {"grant_type": "client_credentials", **options.get("parameters", {})}
    if scope := options.get("scope"):
        form["scope"] = scope
    headers = {
        "Accept": "application/json",
        "Content-Type": "application/x-www-form-urlencoded",
    }
    if options.get("auth", "basic") == "basic":
        pair = f"{quote(known, safe='')}:{quote(secret, safe='')}"
        headers["Authorization"] = "Basic " + base64.b64encode(pair.encode()).decode()
    else:
        form |= {"client_id": known, "client_secret": secret}
    return Request(  # noqa: S310  # the scheme was checked
        options["token_url"], data=urlencode(form).encode(), headers=headers, method="POST"
    )


def _json(response: HTTPResponse | HTTPError) -> Mapping[str, Any]:
    try:
        found = json.loads(response.read(_MOST_BYTES))
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        msg = "the answer is no JSON object; is token_url the token endpoint?"
        raise OSError(msg)
    return found


def _said(error: HTTPError) -> str:
    """Return what the provider says about a refusal, such as `invalid_client`."""
    try:
        answer = _json(error)
    except (OSError, HTTPException):
        return "; is token_url the token endpoint?"
    told = [str(answer[name]) for name in ("error", "error_description") if answer.get(name)]
    line = " ".join(": ".join(told).split())
    return f": {line[:_MOST_SAID]}" if line else ""


def _token(answer: Mapping[str, Any], began: float, options: Mapping[str, Any]) -> Token:
    value = answer.get("access_token")
    if not isinstance(value, str) or not value:
        msg = "the answer has no access_token"
        raise OSError(msg)
    told = claims(value)
    match answer.get("expires_in"), told.get("exp"):
        case ((int() | float() as seconds), _):
            expires = began + seconds
        # Some providers write the number as text.
        case str(text), _ if text.isdecimal() and len(text) <= _DIGITS:
            expires = began + int(text)
        case _, (int() | float() as moment):
            expires = float(moment)
        case _:
            msg = "the answer has neither expires_in nor a token that says when it expires"
            raise OSError(msg)
    principal = told.get("sub")
    return Token(
        value,
        expires,
        principal if isinstance(principal, str) else str(options["client_id"]),
        options.get("extensions", {}),
    )
