"""Find each of Java's classes once."""

from typing import Any

from py4j.java_gateway import JavaGateway, JVMView  # type: ignore[import-untyped]  # it has no types


class JavaClasses(JVMView):  # type: ignore[misc]  # it has no types
    """
    PySpark's way to Java's classes, which remembers those it has found.

    PySpark looks for the same eight in each batch, and to find one by its short name Java goes
    through its some 300 jars for each package that it could be in.
    """

    def __init__(self, gateway: JavaGateway) -> None:
        # Of the view that is there: short names go by the packages that were imported into it.
        found = gateway.jvm
        super().__init__(found._gateway_client, found._jvm_name, id=found._id)  # noqa: SLF001  # no public way to another view of the same

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401  # a class or a package
        found = super().__getattr__(name)
        self.__dict__[name] = found  # where Python looks first
        return found
