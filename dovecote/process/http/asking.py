"""Ask a server of ours, and nobody else: no proxy on the way, and no redirect to another."""

from http.client import HTTPMessage, HTTPResponse
from typing import IO
from urllib.request import HTTPRedirectHandler, ProxyHandler, Request, build_opener


class _Stay(HTTPRedirectHandler):
    """Follows no redirect: urllib would send our headers, and so the token, to another server."""

    def redirect_request(  # noqa: PLR0917  # as the base has it
        self,
        req: Request,  # noqa: ARG002  # the base's arguments
        fp: IO[bytes],  # noqa: ARG002
        code: int,  # noqa: ARG002
        msg: str,  # noqa: ARG002
        headers: HTTPMessage,  # noqa: ARG002
        newurl: str,  # noqa: ARG002
    ) -> None:
        return None


# Without an empty handler urllib takes proxies from the environment, for loopback too.
_opener = build_opener(ProxyHandler({}), _Stay())


def ask(request: Request, seconds: float) -> HTTPResponse:
    """
    Return the answer, from the server of the request's URL.

    Raises:
        HTTPError: the answer is an error, or a redirect.
        OSError: there is no answer.
    """
    answer: HTTPResponse = _opener.open(request, timeout=seconds)
    return answer
