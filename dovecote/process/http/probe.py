"""
Ask a process on this machine whether it works: the health check of a container.

`python -m dovecote.process.http.probe [/readyz] [PORT]` ends with status 0 if the answer is 200.
Otherwise it ends with 1 and a line that says why. It asks `/healthz` unless told otherwise.
"""

import os
import sys
from collections.abc import Mapping, Sequence
from http.client import HTTPConnection, HTTPException

from dovecote.process.signals import INTERRUPTED

PORTS = (9464, 8080)
"""Our examples use them, the first for relays and consumers, the second for push."""

VARIABLE = "DOVECOTE_HEALTH_PORT"
"""The variable that names another port."""

_SECONDS = 4
_MOST = 300


def ask(path: str, ports: Sequence[int]) -> str | None:
    """Return why the first of `ports` that anybody listens on does not answer 200, or None."""
    for port in ports:
        connection = HTTPConnection("127.0.0.1", port, timeout=_SECONDS)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            if answer.status == 200:  # noqa: PLR2004  # OK
                return None
            return f"{port}{path} answers {answer.status}: {_text(answer.read(_MOST))}"
        except ConnectionRefusedError:
            continue
        except (OSError, HTTPException) as error:
            return f"{port}{path}: {str(error) or type(error).__name__}"
        finally:
            connection.close()
    tried = " or ".join(map(str, ports))
    return f"nothing listens on {tried}: set http.port, and {VARIABLE} to it if it is another one"


def asked(words: Sequence[str], environ: Mapping[str, str]) -> tuple[str, Sequence[int]]:
    """
    Return the path and the ports that arguments and environment name.

    Raises:
        ValueError: a port is none.
    """
    named = [each for each in words if not each.startswith("/")] or [environ.get(VARIABLE, "")]
    paths = [each for each in words if each.startswith("/")] or ["/healthz"]
    return paths[0], [int(named[0])] if named[0] else PORTS


def _text(body: bytes) -> str:
    return body.decode(errors="replace").strip()


def main() -> None:
    """Ask, and end."""
    try:
        reason = ask(*asked(sys.argv[1:], os.environ))
    except ValueError as error:
        reason = f"{error}: give a path such as /readyz, and a port"
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    if reason is not None:
        sys.stderr.write(f"{reason}\n")
        sys.exit(1)


if __name__ == "__main__":
    main()
