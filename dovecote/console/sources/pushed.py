"""Ask push's API for its subscriptions."""

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request

from dovecote.console.rules.facts import SubscriptionFacts
from dovecote.console.rules.numbers import count_of, state_of
from dovecote.observe.sources import PushSource
from dovecote.process.http.asking import ask, json_of, why
from outbox.errors import DovecoteError

_MOST = 64_000_000
_MOST_ATTEMPTS = 2_000_000


class PushApi:
    """The API of one push; one thread asks for all subscriptions, and others for attempts."""

    def __init__(self, source: PushSource, timeout: float) -> None:
        self._url, self._token, self._timeout = source.url or "", source.token, timeout
        self.requests = 0
        """Requests so far."""

    def ask(self) -> Sequence[SubscriptionFacts]:
        """
        Return all subscriptions that the token may see.

        Raises:
            DovecoteError: push does not answer, or refuses.
        """
        # Thousands of subscriptions take their time.
        told = self._get("/subscriptions", _MOST, self._timeout * 5)
        if not isinstance(told, list):
            msg = "what answers is not push's API: correct `url` of the source"
            raise DovecoteError(msg)
        try:
            return [_subscription(each) for each in told]
        except (KeyError, TypeError, ValueError, OverflowError, AttributeError) as error:
            msg = f"push's API answers in another form ({error!r}): is it of this version?"
            raise DovecoteError(msg) from error

    def attempts(self, subscription: str) -> list[Mapping[str, Any]]:
        """
        Return the last attempts of a subscription, newest first.

        Raises:
            DovecoteError: push does not answer, or refuses.
        """
        path = f"/subscriptions/{subscription}/attempts"
        told = self._get(path, _MOST_ATTEMPTS, self._timeout)
        return told if isinstance(told, list) else []

    def _get(self, path: str, most: int, seconds: float) -> Any:  # noqa: ANN401  # JSON
        self.requests += 1
        headers = {"Authorization": f"Bearer {self._token}"} if self._token else {}
        request = Request(f"{self._url}{path}", headers=headers)  # noqa: S310  # its scheme is checked
        try:
            return json_of(ask(request, seconds, most))
        except HTTPError as error:
            with error:
                msg = f"its API answers {error.code}"
                if error.code in {401, 403}:
                    msg += ": `token` of the source needs the right to read all subscriptions"
                raise DovecoteError(msg) from None
        except (OSError, ValueError) as error:
            raise DovecoteError(why(error)) from error


def _subscription(told: Mapping[str, Any]) -> SubscriptionFacts:
    status, delivery = told["status"], told["delivery"]
    health = told.get("health") or {}
    parted = [each["topic"] for each in told.get("partitions") or ()]
    topics = told.get("topics") or parted
    return SubscriptionFacts(
        id=str(told["id"]),
        topics=[str(each) for each in topics if isinstance(each, str)],
        status=str(status["state"]),
        reason=str(status.get("reason") or ""),
        state=state_of(health) if health.get("state") else None,
        processes=count_of(delivery["processes"]),
        trouble=str(health.get("reason") or delivery.get("trouble") or "")
        if health.get("state") in {"failing", "stalled", "unknown", "behind"}
        else str(delivery.get("trouble") or ""),
        circuit=str(delivery.get("circuit") or ""),
        lag=None if (lag := delivery.get("lag")) is None else count_of(lag),
        delivered=count_of(told["counts"]["delivered"]),
        dead=count_of(told["counts"]["dead"]),
        url=str((told.get("endpoint") or {}).get("url") or ""),
        last_minute={
            name: count_of(each) for name, each in (delivery.get("last_minute") or {}).items()
        },
    )
