"""Parses YAML and finds the line of each value.

Only YAML's safe types are accepted, no key twice, and nothing nested too deep.
"""

from __future__ import annotations

from typing import Any, Final

import yaml

from bccnd.errors import ConfigError, Fault

#: levels of lists and mappings; the settings have four
_MAX_DEPTH: Final = 20


class Document:
    """A parsed file, whose keys and values are ``data``. Raises ConfigError with file and line."""

    def __init__(self, text: str, path: str) -> None:
        self._path = path
        try:
            self._root = yaml.compose(text, Loader=yaml.SafeLoader)
            self.data = _plain(self._root)
        except yaml.MarkedYAMLError as error:
            line = error.problem_mark.line + 1 if error.problem_mark else 0
            reason = " ".join(str(part) for part in (error.context, error.problem) if part)
            remedy = "check the indentation and quotes of this line and the one before"
            raise ConfigError([Fault(path, line, "", reason, remedy)]) from error
        except yaml.YAMLError as error:
            raise ConfigError([Fault(path, 0, "", str(error), "save it as plain UTF-8 text")]) from error
        except RecursionError as error:
            raise ConfigError([Fault(path, 0, "", "nested too deep", "see etc/bccnd.yaml")]) from error
        if self.data is None:
            self.data = {}
        if not isinstance(self.data, dict):
            raise ConfigError([Fault(path, 1, "", "not a list of keys and values", "see etc/bccnd.yaml")])

    def fault(self, where: tuple[int | str, ...], reason: str, remedy: str) -> Fault:
        """Make a fault of the value at a place, which is given as keys and positions."""
        path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in where).lstrip(".")
        return Fault(self._path, self._line(where), path, reason, remedy)

    def _line(self, where: tuple[int | str, ...]) -> int:
        node, line = self._root, 0
        for part in where:
            found = None
            if isinstance(node, yaml.MappingNode):
                for key, value in node.value:
                    if key.value == str(part):
                        line, found = key.start_mark.line + 1, value
            elif isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
                found = node.value[part]
                line = found.start_mark.line + 1
            if found is None:
                break
            node = found
        return line


def _plain(root: yaml.Node | None) -> Any:
    """Construct the values of a document. Raises MarkedYAMLError for a repeated key, a value that does not fit its
    tag, and one that is nested too deep or contains itself."""
    if root is None:
        return None
    _check_node(root, [], set())
    return yaml.SafeLoader("").construct_document(root)


def _check_node(node: yaml.Node, above: list[yaml.Node], done: set[int]) -> None:
    if len(above) > _MAX_DEPTH or any(node is other for other in above):
        raise yaml.MarkedYAMLError(problem="nested too deep", problem_mark=node.start_mark)
    if id(node) in done:  # an alias was checked before
        return
    done.add(id(node))
    inner: list[yaml.Node] = []
    if isinstance(node, yaml.MappingNode):
        names: set[str] = set()
        for key, value in node.value:
            name = str(key.value)
            if name in names:
                raise yaml.MarkedYAMLError(problem=f"the key {name} is repeated", problem_mark=key.start_mark)
            names.add(name)
            inner += [key, value]
    elif isinstance(node, yaml.SequenceNode):
        inner = node.value
    for one in inner:
        _check_node(one, [*above, node], done)
    if isinstance(node, yaml.ScalarNode):
        try:
            yaml.SafeLoader("").construct_document(node)
        except (ValueError, LookupError, AttributeError, ArithmeticError) as error:
            problem = f"cannot be read as {node.tag.rpartition(':')[2]}"
            raise yaml.MarkedYAMLError(problem=problem, problem_mark=node.start_mark) from error
