"""Makes mutants of modules, each with one small fault; a plugin of pytest imports the one that MUTANT names."""

from __future__ import annotations

import ast
import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from types import ModuleType
from typing import Any, Final, NamedTuple

ROOT: Final = Path(__file__).parents[2]
_SWAPPED: Final[dict[type[ast.AST], type[ast.AST]]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.FloorDiv, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult, ast.LShift: ast.RShift, ast.RShift: ast.LShift, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
    ast.And: ast.Or, ast.Or: ast.And,
}  # fmt: skip


class Mutant(NamedTuple):
    """One fault: where it is, the lines that it changes before and after, and the whole text with it."""

    path: str
    function: str
    line: int
    before: str
    after: str
    text: str

    @property
    def name(self) -> str:
        """What it is known by while lines above it come and go."""
        return f"{self.path}: {self.function}: {self.before} -> {self.after}"


def mutants(path: str) -> Iterator[Mutant]:
    """Yield all mutants of a module; those of annotations and of what stands outside functions are left out."""
    source = (ROOT / path).read_text()
    lines = source.encode().splitlines(keepends=True)
    for name, function in _functions(ast.parse(source), ""):
        for node, faulty in _faults(function):
            first, last = node.lineno - 1, (node.end_lineno or node.lineno) - 1
            changed = lines[first][: node.col_offset] + faulty.encode() + lines[last][node.end_col_offset :]
            before = b" ".join(line.strip() for line in lines[first : last + 1])
            text = b"".join((*lines[:first], changed, *lines[last + 1 :]))
            yield Mutant(path, name, node.lineno, before.decode(), changed.decode().strip(), text.decode())


def _functions(node: ast.AST, outer: str) -> Iterator[tuple[str, ast.FunctionDef]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef):
            yield f"{outer}{child.name}", child
        elif isinstance(child, ast.ClassDef):
            yield from _functions(child, f"{outer}{child.name}.")


def _faults(function: ast.FunctionDef) -> Iterator[tuple[ast.expr | ast.stmt, str]]:
    """Yield each node of a function's body that can be put wrong, with what takes its place."""
    todo: list[ast.AST] = list(reversed(function.body))
    while todo:
        node = todo.pop()
        if isinstance(node, ast.stmt):
            yield from _in_statement(node)
        elif isinstance(node, ast.expr) and (faulty := _in_expression(node)) is not None:
            # In brackets, since what surrounds it may bind closer; f-strings are kept whole.
            yield node, f"({ast.unparse(faulty)})"
        if isinstance(node, ast.AnnAssign):
            todo += [node.value] if node.value else []
        elif not isinstance(node, ast.JoinedStr | ast.arguments):
            todo += reversed(list(ast.iter_child_nodes(node)))


def _in_statement(node: ast.stmt) -> Iterator[tuple[ast.expr | ast.stmt, str]]:
    match node:
        case ast.Expr(value=ast.Constant() | ast.Yield() | ast.YieldFrom()) | ast.Return(value=None | ast.Constant()):
            return
        case ast.Expr() | ast.AugAssign() | ast.Delete() | ast.Assign(targets=[ast.Attribute() | ast.Subscript(), *_]):
            yield node, "pass"
        case ast.Return():
            yield node, "return None"
        case ast.Break() | ast.Continue():
            yield node, "continue" if isinstance(node, ast.Break) else "break"
        case ast.While(test=test):
            yield test, "(False)"
        case ast.If(test=test):
            yield test, "(False)"
            yield test, "(True)"


def _in_expression(node: ast.expr) -> ast.expr | None:
    match node:
        case ast.Compare(ops=[first, *rest]) if type(first) in _SWAPPED:
            return ast.Compare(node.left, [_SWAPPED[type(first)](), *rest], node.comparators)  # type: ignore[list-item]
        case ast.BoolOp():
            return ast.BoolOp(_SWAPPED[type(node.op)](), node.values)  # type: ignore[arg-type]
        case ast.BinOp(op=op) if type(op) in _SWAPPED:
            return ast.BinOp(node.left, _SWAPPED[type(op)](), node.right)  # type: ignore[arg-type]
        case ast.UnaryOp(op=ast.Not()):
            return node.operand
        case ast.Constant(value=bool(value)):
            return ast.Constant(not value)
        case ast.Constant(value=int(value) | float(value)):
            return ast.Constant(value + 1)
    return None


class _Overlay(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports a module from the text of a mutant."""

    def __init__(self, mutant: Mutant) -> None:
        self._name = mutant.path.removesuffix(".py").replace("/", ".")
        self._mutant = mutant

    def find_spec(self, fullname: str, _path: Any = None, _target: Any = None) -> importlib.machinery.ModuleSpec | None:
        if fullname != self._name:
            return None
        return importlib.util.spec_from_file_location(fullname, ROOT / self._mutant.path, loader=self)

    def exec_module(self, module: ModuleType) -> None:
        exec(compile(self._mutant.text, str(ROOT / self._mutant.path), "exec"), module.__dict__)


if chosen := os.environ.get("MUTANT"):
    path, _, number = chosen.partition(":")
    sys.meta_path.insert(0, _Overlay(next(islice(mutants(path), int(number), None))))
