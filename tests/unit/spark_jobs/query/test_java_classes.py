"""A Java class is looked for once."""

from types import SimpleNamespace
from typing import Any

import pytest
from py4j.java_gateway import JVMView  # type: ignore[import-untyped]  # it has no types
from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # as above

from spark_jobs.query.session import JavaClasses


class Java:
    """Answers like the other end of py4j, and knows one class."""

    gateway_property = SimpleNamespace(pool=None)
    converters = ()

    def __init__(self) -> None:
        self.asked: list[str] = []

    def send_command(self, command: str) -> str:
        _, _, name, view, _ = command.split("\n", 4)
        self.asked.append(f"{view} {name}")
        return "ycorg.x.Known" if name == "Known" else "x"


def _classes(java: Java) -> Any:
    return JavaClasses(SimpleNamespace(jvm=JVMView(java, "default", id="rj")))


def test_a_class_is_looked_for_once_and_in_the_view_that_has_the_imports() -> None:
    java = Java()
    classes = _classes(java)
    assert classes.Known is classes.Known
    assert classes.Known._fqn == "org.x.Known"
    assert java.asked == ["rj Known"]


def test_what_is_not_there_is_looked_for_again() -> None:
    java = Java()
    classes = _classes(java)
    for _ in range(2):
        with pytest.raises(Py4JError, match="Unknown does not exist"):
            _ = classes.Unknown
    assert java.asked == ["rj Unknown"] * 2
