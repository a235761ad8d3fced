"""Where pytest finds the fixtures; each kind lives in a module of its own."""

from tests.fix_stack import database, module_stack, own_stack, stack, topic
from tests.fix_tracing import spans

__all__ = ["database", "module_stack", "own_stack", "spans", "stack", "topic"]
