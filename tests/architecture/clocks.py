"""A rule about time: who may read the wall clock, and that nobody reads it without a time zone."""

import ast
from collections.abc import Iterator, Mapping

WALL_CLOCKS = frozenset(
    {"datetime.datetime.now", "datetime.datetime.utcnow", "datetime.datetime.today", "datetime.date.today", "time.time", "time.time_ns"}
)
NAIVE_CLOCKS = frozenset({"datetime.datetime.utcnow", "datetime.datetime.today", "datetime.date.today"})
UTC_NAMES = frozenset({"datetime.UTC", "datetime.timezone.utc"})


def wall_clock_readings(source: str) -> Iterator[tuple[int, str]]:
    """Yield line and name of every use of a wall clock, called or only handed on."""
    tree = ast.parse(source)
    names = _imported(tree)
    for node in _expressions(tree):
        name = _qualified(node, names)
        if name in WALL_CLOCKS:
            yield node.lineno, name


def naive_readings(source: str) -> Iterator[tuple[int, str]]:
    """Yield line and name of every use of a clock that does not say UTC."""
    tree = ast.parse(source)
    names = _imported(tree)
    aware = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call) and _says_utc(node, names)}
    for node in _expressions(tree):
        name = _qualified(node, names)
        if name in NAIVE_CLOCKS or (name == "datetime.datetime.now" and id(node) not in aware):
            yield node.lineno, name


def _expressions(tree: ast.AST) -> Iterator[ast.expr]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.expr))


def _says_utc(call: ast.Call, names: Mapping[str, str]) -> bool:
    arguments = [*call.args, *(keyword.value for keyword in call.keywords)]
    return len(arguments) == 1 and _qualified(arguments[0], names) in UTC_NAMES


def _imported(tree: ast.AST) -> dict[str, str]:
    """Return what each imported name stands for, e.g. `dt` for `datetime.datetime`."""
    names: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {(alias.asname or alias.name): alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names |= {(alias.asname or alias.name): f"{node.module}.{alias.name}" for alias in node.names}
    return names


def _qualified(node: ast.AST, names: Mapping[str, str]) -> str:
    """Return the full name that an expression refers to, or the empty string."""
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
        return names.get(node.id, "")
    if isinstance(node, ast.Attribute):
        owner = _qualified(node.value, names)
        return f"{owner}.{node.attr}" if owner else ""
    return ""
