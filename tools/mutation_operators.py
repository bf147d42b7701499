"""The mutations of a Python module: small changes, each of which is a bug that a test should notice."""

import ast
import hashlib
from collections.abc import Iterator
from typing import NamedTuple

COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.FloorDiv: ast.Mult, ast.Div: ast.Mult,
    ast.Mod: ast.FloorDiv, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd, ast.LShift: ast.RShift,
}  # fmt: skip
CALLS = {"min": "max", "max": "min", "any": "all", "all": "any"}
# A changed log line is no changed behaviour.
LOGGERS = frozenset({"_log", "log", "logger"})


class Mutation(NamedTuple):
    """One change: a span of the source and its replacement.

    `lines` are the lines of the smallest statement around it: tests that run one of them may notice it.
    """

    operator: str
    start: int
    end: int
    replacement: str
    lines: tuple[int, int]
    scope: str
    is_static: bool

    def applied_to(self, text: bytes) -> bytes:
        """Return the source with the change."""
        return text[: self.start] + self.replacement.encode() + text[self.end :]


class _Place(NamedTuple):
    """Where a node is: the statement around it, the function or class around that."""

    statement: ast.stmt | None
    scope: str
    is_static: bool


class Mutator:
    """Lists the mutations of one source file."""

    def __init__(self, source: str) -> None:
        self.text = source.encode()
        self._tree = ast.parse(source)
        self._offsets = [0]
        for line in self.text.splitlines(keepends=True):
            self._offsets.append(self._offsets[-1] + len(line))

    def mutations(self) -> list[Mutation]:
        """Return every mutation that still compiles, in the order of the source."""
        found = set(self._visit(self._tree, _Place(None, "", True)))
        valid = [mutation for mutation in found if self._compiles(mutation)]
        return sorted(valid, key=lambda mutation: (mutation.start, mutation.end, mutation.replacement))

    def _compiles(self, mutation: Mutation) -> bool:
        if self.text[mutation.start : mutation.end].decode() == mutation.replacement:
            return False
        try:
            compile(mutation.applied_to(self.text), "<mutant>", "exec")
        except SyntaxError:
            return False
        return True

    # --- the walk ----------------------------------------------------------------------------------

    def _visit(self, node: ast.AST, place: _Place) -> Iterator[Mutation]:
        if isinstance(node, ast.JoinedStr | ast.Import | ast.ImportFrom) or _is_log(node):
            return
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from self._function(node, place)
            return
        if isinstance(node, ast.ClassDef):
            scope = f"{place.scope}.{node.name}".lstrip(".")
            for inner in node.body:
                yield from self._visit(inner, _Place(inner, scope, True))
            return
        if isinstance(node, ast.stmt):
            place = _Place(node, place.scope, place.is_static)
            yield from self._statement(node, place)
        if isinstance(node, ast.expr):
            yield from self._expression(node, place)
        for child in _children(node):
            yield from self._visit(child, place)

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef, place: _Place) -> Iterator[Mutation]:
        scope = f"{place.scope}.{node.name}".lstrip(".")
        # A default value matters when the function is called without it.
        inside = _Place(node.body[-1], scope, False)
        for default in [*node.args.defaults, *(each for each in node.args.kw_defaults if each is not None)]:
            yield from self._visit(default, inside)
        for statement in node.body:
            yield from self._visit(statement, _Place(statement, scope, False))

    # --- statements --------------------------------------------------------------------------------

    def _statement(self, node: ast.stmt, place: _Place) -> Iterator[Mutation]:
        match node:
            case ast.Expr(value=ast.Constant()):
                return
            case ast.Expr() if not _is_log(node.value):
                yield self._change("a statement removed", node, "pass", place)
            case ast.AugAssign() | ast.Raise() | ast.Continue() | ast.Break():
                yield self._change("a statement removed", node, "pass", place)
            case ast.Assign(targets=[ast.Attribute() | ast.Subscript(), *_]):
                yield self._change("a statement removed", node, "pass", place)
            case ast.Return(value=ast.expr() as value) if not _is_constant(value, None):
                yield self._change("nothing returned", node, "return None", place)
            case ast.If(test=test) | ast.While(test=test) if not _has_opposite(test):
                yield self._change("a condition negated", test, f"not ({ast.unparse(test)})", place)
            case ast.Try(handlers=handlers):
                for handler in handlers:
                    yield from self._handler(handler, place)
            case _:
                pass

    def _handler(self, handler: ast.ExceptHandler, place: _Place) -> Iterator[Mutation]:
        first, last = handler.body[0], handler.body[-1]
        if not isinstance(first, ast.Raise):
            start, end = self._span(first)[0], self._span(last)[1]
            lines = (handler.lineno, last.end_lineno or last.lineno)
            yield Mutation("an error not handled", start, end, "raise", lines, place.scope, place.is_static)

    # --- expressions -------------------------------------------------------------------------------

    def _expression(self, node: ast.expr, place: _Place) -> Iterator[Mutation]:
        match node:
            case ast.Compare():
                yield from self._comparison(node, place)
            case ast.Constant():
                yield from self._constant(node, place)
            case ast.Call():
                yield from self._call(node, place)
            case ast.BinOp() if type(node.op) in ARITHMETIC:
                changed = ast.BinOp(left=node.left, op=ARITHMETIC[type(node.op)](), right=node.right)
                yield self._replace("another operator", node, changed, place)
            case ast.UnaryOp(op=ast.Not()):
                yield self._replace("not dropped", node, node.operand, place)
            case ast.Await():
                yield self._replace("await dropped", node, node.value, place)
            case ast.BoolOp() | ast.IfExp():
                yield from self._choice(node, place)
            case _:
                pass

    def _choice(self, node: ast.BoolOp | ast.IfExp, place: _Place) -> Iterator[Mutation]:
        if isinstance(node, ast.IfExp):
            swapped = ast.IfExp(test=node.test, body=node.orelse, orelse=node.body)
            yield self._replace("a condition negated", node, swapped, place)
        else:
            other = ast.Or() if isinstance(node.op, ast.And) else ast.And()
            yield self._replace("and, or", node, ast.BoolOp(op=other, values=node.values), place)

    def _constant(self, node: ast.Constant, place: _Place) -> Iterator[Mutation]:
        match node.value:
            case bool():
                yield self._change("a constant changed", node, str(not node.value), place)
            case int() | float():
                yield self._change("a constant changed", node, repr(node.value + 1), place)
                if node.value > 0:
                    yield self._change("a constant changed", node, repr(node.value - 1), place)
            case _:
                pass

    def _comparison(self, node: ast.Compare, place: _Place) -> Iterator[Mutation]:
        for number, operator in enumerate(node.ops):
            operators = list(node.ops)
            operators[number] = COMPARISONS[type(operator)]()
            changed = ast.Compare(left=node.left, ops=operators, comparators=node.comparators)
            yield self._replace("another comparison", node, changed, place)

    def _call(self, node: ast.Call, place: _Place) -> Iterator[Mutation]:
        if isinstance(node.func, ast.Name) and node.func.id in CALLS:
            changed = ast.Call(func=ast.Name(CALLS[node.func.id]), args=node.args, keywords=node.keywords)
            yield self._replace("min, max, any, all", node, changed, place)
            return
        plain = not any(isinstance(argument, ast.Starred) for argument in node.args)
        if plain and len(node.args) > 1:
            swapped = [node.args[1], node.args[0], *node.args[2:]]
            changed = ast.Call(func=node.func, args=swapped, keywords=node.keywords)
            yield self._replace("arguments swapped", node, changed, place)

    # --- spans -------------------------------------------------------------------------------------

    def _replace(self, operator: str, node: ast.expr, changed: ast.expr, place: _Place) -> Mutation:
        return self._change(operator, node, f"({ast.unparse(ast.fix_missing_locations(changed))})", place)

    def _change(self, operator: str, node: ast.stmt | ast.expr, new: str, place: _Place) -> Mutation:
        start, end = self._span(node)
        around = place.statement or node
        first = min(around.lineno, node.lineno)
        last = node.end_lineno or node.lineno
        return Mutation(operator, start, end, new, (first, max(first, last)), place.scope, place.is_static)

    def _span(self, node: ast.stmt | ast.expr) -> tuple[int, int]:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        start = self._offsets[node.lineno - 1] + node.col_offset
        return start, self._offsets[node.end_lineno - 1] + node.end_col_offset


def _children(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the parts of a node that run: no annotations, no decorators."""
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "decorator_list", "returns", "ctx"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield child


def _is_log(node: ast.AST) -> bool:
    match node:
        case ast.Call(func=ast.Attribute(value=ast.Name(id=name))):
            return name in LOGGERS
        case _:
            return False


def _has_opposite(test: ast.expr) -> bool:
    """Say whether another mutation negates this condition."""
    match test:
        case ast.UnaryOp(op=ast.Not()):
            return True
        case ast.Compare(ops=[operator]):
            return not isinstance(operator, ast.Lt | ast.LtE | ast.Gt | ast.GtE)
        case _:
            return False


def _is_constant(node: ast.expr, value: object) -> bool:
    return isinstance(node, ast.Constant) and node.value is value


def key_of(path: str, mutation: Mutation, text: bytes, occurrence: int) -> str:
    """Return a name of a mutation that stays the same while its line and its function do."""
    first = text.rfind(b"\n", 0, mutation.start) + 1
    line = text[first : mutation.end].decode()
    parts = [path, mutation.scope, mutation.operator, line, mutation.replacement, str(occurrence)]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]
