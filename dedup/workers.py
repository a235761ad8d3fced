"""Choose how records are handled: in threads, or in tasks if the handler is async."""

from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from functools import partial
from types import MappingProxyType
from typing import Any

from dedup.retries.aside import Aside
from dedup.rules.policies.expressions import Filter
from dedup.rules.policies.policies import OF_CONSUMERS, awaited
from dedup.rules.policies.signatures import is_awaited
from dedup.rules.record import Record
from dedup.serving.awaited import AwaitedServing, alone_awaited, answering_awaited
from dedup.serving.batching import Batching
from dedup.serving.certainty import Certainty
from dedup.serving.direct import BeginsRecords, Direct
from dedup.serving.handover import Handover, Workers
from dedup.serving.runs import Unchosen
from dedup.serving.serving import Serving, alone, answering
from dedup.serving.tasks import AsideInThreads, Loop, Tasks
from dedup.serving.threads import Threads
from dedup.settings.consumer import ConsumerSettings

# The runs of a poll batch for which each policy has nothing to choose.
_UNCHOSEN: Mapping[str, Unchosen] = MappingProxyType({"exact": "distinct", "every": "all"})


def workers_for(
    settings: ConsumerSettings,
    handler: Callable[[Any], Any],
    handover: Handover,
    *,
    aside: Aside,
    passes: Filter | None,
    threads: Executor,
    failed: Callable[[BaseException], None],
    loop: Loop | None = None,
    certainty: Certainty | None = None,
    begins: BeginsRecords | None = None,
) -> Workers:
    """
    Return the workers that pass records to `handler`, which takes one record or several.

    `begins` takes records that an async handler would take, and begins them without a task.
    """

    def matches(record: Record) -> bool:
        return passes is None or passes(record.event)

    policy, together = OF_CONSUMERS[settings.policy], settings.handler_batch
    batching = None
    if together > 1:
        batching = Batching(policy=policy, matches=matches, aside=aside)
    if is_awaited(handler):
        one = handler if batching is None else alone_awaited(handler)
        on_loop = AwaitedServing(
            policy=partial(awaited, policy),
            matches=matches,
            handle=answering_awaited(one, aside),
            aside=AsideInThreads(aside, threads),
            plain=passes is None and batching is None,
            unchosen=_UNCHOSEN.get(settings.policy, "alone"),
            decides_ahead=settings.policy == "latest",
            decides_anew=settings.policy == "first_match",
            batching=batching,
            handle_batch=handler,
            certainty=certainty or Certainty(),
        )
        return Tasks(
            handover,
            on_loop,
            most=settings.concurrency,
            together=together,
            failed=failed,
            loop=loop,
            directly=None if begins is None else partial(Direct, on_loop, begins),
        )
    one = handler if batching is None else alone(handler)
    serving = Serving(
        policy=policy,
        matches=matches,
        handle=answering(one, aside),
        aside=aside,
        plain=passes is None and batching is None,
        unchosen=_UNCHOSEN.get(settings.policy, "alone"),
        decides_ahead=settings.policy == "latest",
        decides_anew=settings.policy == "first_match",
        batching=batching,
        handle_batch=handler,
        certainty=certainty or Certainty(),
    )
    return Threads(handover, serving, most=settings.concurrency, together=together, failed=failed)
