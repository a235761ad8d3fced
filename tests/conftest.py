"""Register the fixtures, each kind in a module of its own, and implement the marks."""

import os
from collections.abc import Iterator

import pytest

from tests import durations
from tests.spark_classes import java_options
from tests.support.crews import bare, crew
from tests.support.fix_containers import NEEDED, lacking
from tests.support.fix_outboxes import conn, dsn, installation, writer
from tests.support.fix_relays import fleet
from tests.support.fix_stack import (
    cluster,
    database,
    embedded,
    lazy,
    module_stack,
    own_stack,
    pair,
    stack,
    topic,
)
from tests.support.fix_tracing import spans
from tests.support.hanging import (
    pytest_configure,
    pytest_exception_interact,
    pytest_handlecrashitem,
    pytest_runtest_logstart,
    pytest_runtest_protocol,
)
from tests.support.inboxes import both, inbox
from tests.support.logged import logging_as_before
from tests.support.registered import registry
from tests.support.restoring import files

__all__ = [
    "bare",
    "both",
    "cluster",
    "conn",
    "crew",
    "database",
    "dsn",
    "embedded",
    "files",
    "fleet",
    "inbox",
    "installation",
    "lazy",
    "logging_as_before",
    "module_stack",
    "own_stack",
    "pair",
    "pytest_configure",
    "pytest_exception_interact",
    "pytest_handlecrashitem",
    "pytest_runtest_logstart",
    "pytest_runtest_protocol",
    "registry",
    "spans",
    "stack",
    "topic",
    "writer",
]


@pytest.fixture(scope="session", autouse=True)
def state_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Make no token for the user who runs the tests, and read none."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield


os.environ.setdefault("SPARK_SUBMIT_OPTS", java_options())


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run tests that are marked `contract` with every available stack."""
    if "stack" in metafunc.fixturenames and metafunc.definition.get_closest_marker("contract"):
        stacks = ["embedded", pytest.param("containers", marks=NEEDED)]
        metafunc.parametrize("stack", stacks, indirect=True)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """
    Begin with the files that take longest: workers take files in this order.

    pytest itself puts tests together that share a parameter of a fixture, across files.
    """
    seconds = {durations.FOLDER / file: spent for file, spent in durations.known().items()}
    items.sort(key=lambda item: -seconds.get(item.path, 0))


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip tests that are marked `containers` if containers cannot run."""
    for mark in item.iter_markers("containers"):
        if (lack := lacking(*mark.args)) is not None:
            pytest.skip(lack)
