"""Makes mutants of a Python source: each differs from it by one small fault."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final, NamedTuple

_COMPARISONS: Final[dict[type[ast.cmpop], type[ast.cmpop]]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
_OPERATORS: Final[dict[type[ast.operator], type[ast.operator]]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}


class Mutant(NamedTuple):
    """One fault: where it is, the lines that it changes before and after, and the whole text with it."""

    function: str
    line: int
    before: str
    after: str
    text: str

    @property
    def name(self) -> str:
        """What it is known by while lines above it come and go."""
        return f"{self.function}: {self.before} -> {self.after}"


def mutants(source: str) -> Iterator[Mutant]:
    """All mutants of a module; those of annotations and of what stands outside functions are left out."""
    for name, function in _functions(ast.parse(source), ""):
        for node, faulty in _faults(function):
            yield _apply(source, name, node, faulty)


def _functions(node: ast.AST, outer: str) -> Iterator[tuple[str, ast.FunctionDef]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef):
            yield f"{outer}{child.name}", child
        elif isinstance(child, ast.ClassDef):
            yield from _functions(child, f"{outer}{child.name}.")


def _apply(source: str, name: str, node: ast.expr | ast.stmt, faulty: str) -> Mutant:
    lines = source.encode().splitlines(keepends=True)
    first, last = node.lineno - 1, (node.end_lineno or node.lineno) - 1
    head, tail = lines[first][: node.col_offset], lines[last][node.end_col_offset :]
    changed = head + faulty.encode() + tail
    before = b" ".join(line.strip() for line in lines[first : last + 1])
    text = b"".join((*lines[:first], changed, *lines[last + 1 :]))
    return Mutant(name, node.lineno, before.decode(), changed.decode().strip(), text.decode())


def _faults(function: ast.FunctionDef) -> Iterator[tuple[ast.expr | ast.stmt, str]]:
    """Each node of a function's body that can be put wrong, with what takes its place."""
    todo: list[ast.AST] = list(reversed(function.body))
    while todo:
        node = todo.pop()
        if isinstance(node, ast.stmt):
            yield from _in_statement(node)
        elif isinstance(node, ast.expr):
            for faulty in _in_expression(node):
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
        case ast.Break():
            yield node, "continue"
        case ast.Continue():
            yield node, "break"
        case ast.While(test=test):
            yield test, "(False)"
        case ast.If(test=test):
            yield test, "(False)"
            yield test, "(True)"


def _in_expression(node: ast.expr) -> Iterator[ast.expr]:
    if isinstance(node, ast.Compare) and type(node.ops[0]) in _COMPARISONS:
        yield ast.Compare(node.left, [_COMPARISONS[type(node.ops[0])](), *node.ops[1:]], node.comparators)
    elif isinstance(node, ast.BoolOp):
        yield ast.BoolOp(ast.Or() if isinstance(node.op, ast.And) else ast.And(), node.values)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield node.operand
    elif isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        yield ast.BinOp(node.left, _OPERATORS[type(node.op)](), node.right)
    elif isinstance(node, ast.Constant):
        if isinstance(node.value, bool):
            yield ast.Constant(not node.value)
        elif isinstance(node.value, int | float):
            yield ast.Constant(node.value + 1)
