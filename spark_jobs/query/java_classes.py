"""Find each Java class only once."""

from typing import Any

from py4j.java_gateway import JavaGateway, JVMView  # type: ignore[import-untyped]  # it has no types


class JavaClasses(JVMView):  # type: ignore[misc]  # it has no types
    """
    PySpark's access to Java classes, with a cache.

    PySpark looks for the same eight classes in each batch. To find one by its short name, Java
    searches its some 300 jars for each package that could contain it.
    """

    def __init__(self, gateway: JavaGateway) -> None:
        # Based on the existing view: short names depend on the packages imported into it.
        found = gateway.jvm
        super().__init__(found._gateway_client, found._jvm_name, id=found._id)  # noqa: SLF001  # no public way to another view of the same

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401  # a class or a package
        found = super().__getattr__(name)
        self.__dict__[name] = found  # Python looks here first
        return found
