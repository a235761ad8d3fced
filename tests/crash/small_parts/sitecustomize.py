"""
Python imports this where a process starts: states of jobs are stored in parts early.

It imports nothing of the jobs itself, because Spark waits for its processes for ten seconds only.
"""

import sys
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType

NAME = "spark_jobs.stateful.parts"


class Early:
    """Finds the module that stores states, and changes a number in it."""

    def find_spec(self, name: str, *_: object) -> ModuleSpec | None:
        if name != NAME:
            return None
        sys.meta_path.remove(self)
        spec = find_spec(name)
        assert spec is not None
        assert spec.loader is not None
        plain = spec.loader.exec_module

        def execute(module: ModuleType) -> None:
            plain(module)
            module.SMALL = 300  # type: ignore[attr-defined]  # it has this

        spec.loader.exec_module = execute  # type: ignore[method-assign]  # of this one alone
        return spec


sys.meta_path.insert(0, Early())
