"""No thread of the package waits forever."""

import ast
from collections.abc import Iterator
from pathlib import Path

import producer

_PACKAGE = Path(producer.__file__).parent
_TREES = {path.relative_to(_PACKAGE): ast.parse(path.read_text()) for path in sorted(_PACKAGE.rglob("*.py"))}
_LOCKS = ("Lock", "RLock", "OwnedLock", "Condition")
_FRAMES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.GeneratorExp)


def _is_timed_get(node: ast.AST) -> bool:
    """Return True for ``queue.get(timeout=…)``."""
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "get"):
        return False
    return not node.args and any(keyword.arg == "timeout" for keyword in node.keywords)


def test_no_thread_waits_for_a_queue_with_a_timeout() -> None:
    """No code calls queue.get with a timeout: for a SimpleQueue it may never end before CPython 3.13."""
    found = [f"{path}:{node.lineno}" for path, tree in _TREES.items() for node in ast.walk(tree) if _is_timed_get(node)]
    assert found == []


def test_no_call_of_an_application_uses_an_event_that_an_interrupt_leaves_locked() -> None:
    """A producer and its channels use Latch: an interrupted set() or wait() of threading.Event stops the next call."""
    roots = {"client", "pipeline", "durable", "channels", "sinks", "runtime"}
    nodes = [(path, each) for path, tree in _TREES.items() if path.parts[0] in roots for each in ast.walk(tree)]
    found = [f"{path}:{each.lineno}" for path, each in nodes if isinstance(each, ast.Call) and _is_event(each.func)]
    assert found == []


def _is_event(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and node.attr == "Event" and _name(node.value) == "threading"


def _name(node: ast.AST) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _names_of_locks() -> Iterator[str]:
    for node in (node for tree in _TREES.values() for node in ast.walk(tree) if isinstance(node, ast.Assign)):
        pairs = [(node.targets[0], node.value)]
        if isinstance(node.value, ast.Tuple) and isinstance(node.targets[0], ast.Tuple):
            pairs = list(
                zip(node.targets[0].elts, node.value.elts, strict=False)
            )  # of *a, b = c, d only a part is known
        yield from (_name(to) for to, value in pairs if isinstance(value, ast.Call) and _name(value.func) in _LOCKS)


def _in_this_frame(node: ast.AST) -> Iterator[ast.AST]:
    """Yield a node and its parts, except for nested functions."""
    yield node
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, _FRAMES):
            yield from _in_this_frame(child)


def _ends_on_a_condition(body: list[ast.stmt]) -> bool:
    last = body[-1]
    if isinstance(last, ast.If):
        return not last.orelse or _ends_on_a_condition(last.body) or _ends_on_a_condition(last.orelse)
    if isinstance(last, ast.Try):
        parts = (last.body, last.orelse, *(handler.body for handler in last.handlers))
        return any(part and _ends_on_a_condition(part) for part in parts)
    return isinstance(last, ast.Match | ast.Assert)


def _jumps_back_on_a_condition(node: ast.AST) -> bool:
    if isinstance(node, ast.ListComp | ast.SetComp | ast.DictComp):
        return any(part.ifs for part in node.generators)
    if isinstance(node, ast.While) and not isinstance(node.test, ast.Constant):
        return True
    return isinstance(node, ast.For | ast.While) and _ends_on_a_condition(node.body)


def test_a_signal_handler_that_raises_leaves_no_lock_taken() -> None:
    """A signal handler that raises leaves no lock held.

    On CPython 3.13 ``with`` is not left if a handler raises where a loop in it jumps back on a condition. Such loops
    are in functions that the block calls.
    """
    locks = {*_names_of_locks(), "lock"}
    assert {"_lock", "_state", "_writing", "_leaving"} <= locks
    found = [
        f"{path}:{inner.lineno}"
        for path, tree in _TREES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.With) and any(_name(item.context_expr) in locks for item in node.items)
        for statement in node.body
        for inner in _in_this_frame(statement)
        if _jumps_back_on_a_condition(inner)
    ]
    assert sorted(set(found)) == []
