"""Which way a number of a test is more lenient: up for tolerances, down for counts.

A comparison says it itself (`error < LIMIT`); otherwise the words of the name do.
"""

import ast
import re
from enum import Enum

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_TOLERANCE = frozenset(
    (
        "tol",
        "atol",
        "rtol",
        "abs",
        "rel",
        "eps",
        "epsilon",
        "tolerance",
        "tolerances",
        "margin",
        "slack",
        "ulp",
        "ulps",
        "nan",
    )
)
_COUNT = frozenset(
    (
        "min",
        "minimum",
        "least",
        "trials",
        "trial",
        "examples",
        "cases",
        "samples",
        "runs",
        "repeats",
        "iterations",
        "rows",
        "layers",
        "steps",
        "seeds",
        "count",
        "size",
        "sizes",
        "length",
        "lengths",
        "tokens",
        "shapes",
        "batch",
        "cos",
        "cosine",
        "jaccard",
        "agreement",
        "must",
        "strict",
        "check",
        "checks",
        "decides",
        "exact",
        "required",
        "deterministic",
        "dtypes",
        "devices",
        "depths",
    )
)
_BOUND = frozenset(
    (
        "max",
        "maximum",
        "most",
        "limit",
        "limits",
        "bound",
        "err",
        "error",
        "errors",
        "loss",
        "kl",
        "allowed",
        "allow",
        "ignore",
        "skip",
        "budget",
        "factor",
        "k",
        "threshold",
    )
)


class Way(Enum):
    """In which direction a number asks for less."""

    UP = "larger"
    DOWN = "smaller"
    UNKNOWN = "unknown"

    @property
    def other(self) -> "Way":
        """The opposite direction."""
        return {Way.UP: Way.DOWN, Way.DOWN: Way.UP}.get(self, self)

    def looser(self, old: float, new: float) -> bool:
        """Tell whether a number that changed asks for less."""
        return (self is Way.UP and new > old) or (self is Way.DOWN and new < old)


def way_of_name(name: str) -> Way:
    """Return what the words of a name say: `rtol` up, `max_examples` down, `min_cosine` down."""
    words = {word.lower() for word in _WORD.findall(name)}
    if words & _TOLERANCE:
        return Way.UP
    if words & _COUNT:
        return Way.DOWN
    return Way.UP if words & _BOUND else Way.UNKNOWN


def ways_by_use(tree: ast.AST) -> dict[str, Way]:
    """Return the directions that comparisons give to names: `error < LIMIT` makes LIMIT an up."""
    found: dict[str, Way] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            for side, way in sides(node):
                if isinstance(side, ast.Name) and side.id.isupper() and way is not Way.UNKNOWN:
                    found.setdefault(side.id, way)
    return found


def sides(node: ast.Compare) -> list[tuple[ast.expr, Way]]:
    """Return the operands of a comparison, each with the way in which it is more lenient."""
    found = []
    operands = [node.left, *node.comparators]
    for left, operator, right in zip(operands, node.ops, operands[1:], strict=False):
        way = Way.UNKNOWN
        if isinstance(operator, ast.Lt | ast.LtE):
            way = Way.UP
        elif isinstance(operator, ast.Gt | ast.GtE):
            way = Way.DOWN
        found += [(left, way.other), (right, way)]
    return found


def number(node: ast.AST) -> float | None:
    """Return the value of an expression of constants (`-1`, `2 * 1e-3`); None for any other."""
    if isinstance(node, ast.Constant) and isinstance(node.value, bool | int | float):
        return float(node.value)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        inner = number(node.operand)
        return None if inner is None else -inner
    if not isinstance(node, ast.BinOp):
        return None
    left, right = number(node.left), number(node.right)
    if left is None or right is None:
        return None
    try:
        return _apply(node.op, left, right)
    except (ArithmeticError, ValueError):
        return None


def _apply(operator: ast.operator, left: float, right: float) -> float | None:
    match operator:
        case ast.Add():
            return left + right
        case ast.Sub():
            return left - right
        case ast.Mult():
            return left * right
        case ast.Div():
            return left / right
        case ast.Pow():
            made = left**right
            return made if isinstance(made, float) else None
    return None
