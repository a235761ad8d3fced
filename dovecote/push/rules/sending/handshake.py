"""The CloudEvents webhook handshake: whether requests may be sent, and how many a minute."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

_NUMBER = re.compile(r"[1-9]\d{0,8}")


@dataclass(frozen=True, slots=True)
class Agreed:
    """Requests may be sent."""

    per_second: float | None
    """The most that may be sent; None: no limit."""


@dataclass(frozen=True, slots=True)
class NotAgreed:
    """Requests may not be sent; `reason` says why."""

    reason: str


def asking(origin: str, per_second: float | None) -> tuple[tuple[str, str], ...]:
    """Return the headers of the request that asks."""
    headers = [("WebHook-Request-Origin", origin)]
    if per_second is not None:
        headers.append(("WebHook-Request-Rate", str(max(1, round(per_second * 60)))))
    return tuple(headers)


def agreement(status: int, headers: Mapping[str, str], origin: str) -> Agreed | NotAgreed:
    """Return the meaning of an endpoint's answer; header names are in lower case."""
    if not 200 <= status < 300:  # noqa: PLR2004  # what 2xx is
        return NotAgreed(f"OPTIONS was answered {status}")
    allowed = headers.get("webhook-allowed-origin", "").strip()
    if allowed not in {"*", origin}:
        told = f"allows {allowed!r}" if allowed else "has no WebHook-Allowed-Origin"
        return NotAgreed(f"its answer to OPTIONS {told}, and we are {origin!r}")
    rate = headers.get("webhook-allowed-rate", "*").strip()
    if rate == "*":
        return Agreed(None)
    if not _NUMBER.fullmatch(rate):
        return NotAgreed(f"WebHook-Allowed-Rate {rate!r} is not a number of requests a minute")
    return Agreed(int(rate) / 60)
