"""YAML 1.2, in its core schema: 010 is ten, 1:00 and `no` are texts, and no key stands twice."""

import re
from itertools import chain
from typing import Any

import yaml
from yaml.composer import ComposerError
from yaml.nodes import MappingNode, Node, ScalarNode

_DIGITS = "-+0123456789"
_MOST = 1_000_000
_FLOAT = (
    r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?"
    r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)"
)
# A tag, the scalars that have it, and with what they begin; the first that matches counts.
_CORE = (
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("bool", r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    ("int", r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", list(_DIGITS)),
    (
        "float",
        _FLOAT,
        list(_DIGITS + "."),
    ),
    # Not in YAML 1.2, but in many files.
    ("merge", "<<", ["<"]),
)


class Loader(yaml.SafeLoader):
    """PyYAML's safe loader, which by itself reads YAML 1.1."""

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012  # as PyYAML declares it

    def get_single_node(self) -> Node | None:
        """Compose the document, whose aliases must not make much more of it than it is."""
        node: Node | None = super().get_single_node()
        if node is not None and (size := _expanded(node, {})) > _MOST:
            what = f"its aliases make {size:,} characters of it, and at most {_MOST:,} are read"
            raise ComposerError(None, None, what, node.start_mark)
        return node

    def compose_mapping_node(self, anchor: Any) -> MappingNode:  # noqa: ANN401  # PyYAML's
        """Compose a mapping before anything is merged into it."""
        node: MappingNode = super().compose_mapping_node(anchor)
        seen: set[tuple[str, str]] = set()
        for key, _ in node.value:
            if not isinstance(key, ScalarNode):
                continue  # no key of a setting
            if (key.tag, key.value) in seen:
                what = f"the key {key.value!r} stands twice in one mapping"
                raise ComposerError(None, None, what, key.start_mark)
            seen.add((key.tag, key.value))
        return node


def _expanded(node: Node, known: dict[int, int]) -> int:
    """Return the characters of a node in which each alias is written out; `known` grows."""
    if isinstance(node, ScalarNode):
        return 1 + len(node.value)
    if (size := known.get(id(node))) is not None:
        if not size:
            what = "an alias stands within what it stands for"
            raise ComposerError(None, None, what, node.start_mark)
        return size
    known[id(node)] = 0
    parts = chain.from_iterable(node.value) if isinstance(node, MappingNode) else node.value
    known[id(node)] = size = 1 + sum(_expanded(each, known) for each in parts)
    return size


def _int(loader: Loader, node: Node) -> int:
    text = loader.construct_scalar(node)  # type: ignore[arg-type]  # a tag of scalars
    return int(text, 0 if text[:2] in {"0o", "0x"} else 10)


for _tag, _pattern, _first in _CORE:
    Loader.add_implicit_resolver(
        f"tag:yaml.org,2002:{_tag}", re.compile(rf"(?:{_pattern})\Z"), _first
    )
Loader.add_constructor("tag:yaml.org,2002:int", _int)
