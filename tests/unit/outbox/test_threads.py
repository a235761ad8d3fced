"""Threads that are not real ones are refused, with what to do instead."""

import sys
from types import SimpleNamespace

import pytest

from outbox.errors import NoThreads
from outbox.threads import require_threads


@pytest.mark.parametrize(
    ("module", "asked", "name", "patch"),
    [
        ("gevent.monkey", "is_module_patched", "threading", "monkey.patch_all(thread=False)"),
        ("eventlet.patcher", "is_monkey_patched", "thread", "eventlet.monkey_patch(thread=False)"),
    ],
)
def test_greenlets_are_refused_and_a_library_that_has_replaced_none_is_not(
    monkeypatch: pytest.MonkeyPatch, module: str, asked: str, name: str, patch: str
) -> None:
    patched: set[str] = set()
    monkeypatch.setitem(sys.modules, module, SimpleNamespace(**{asked: patched.__contains__}))
    require_threads("a producer", "`outbox.write`")

    patched.add(name)

    with pytest.raises(NoThreads) as refused:
        require_threads("a producer", "`outbox.write`")
    assert patch in str(refused.value)
    assert str(refused.value).endswith("or `outbox.write`")
