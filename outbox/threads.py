"""Check that the threads of this process are real threads."""

import sys

from outbox.errors import NoThreads


def require_threads(what: str, instead: str) -> None:
    """
    Check that no library has replaced threads by greenlets.

    Raises:
        NoThreads: one has; `instead` says what to use there.
    """
    gevent = sys.modules.get("gevent.monkey")
    eventlet = sys.modules.get("eventlet.patcher")
    if gevent is not None and gevent.is_module_patched("threading"):
        by, patch = "gevent", "monkey.patch_all(thread=False)"
    elif eventlet is not None and eventlet.is_monkey_patched("thread"):
        by, patch = "eventlet", "eventlet.monkey_patch(thread=False)"
    else:
        return
    msg = (
        f"{by} has made greenlets of the threads of this process: {what} waits in Kafka's client, "
        f"and every greenlet would stand still meanwhile. Patch with `{patch}`, use workers that "
        f"are threads or processes, or {instead}"
    )
    raise NoThreads(msg)
