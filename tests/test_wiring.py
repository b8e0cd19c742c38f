"""Objects are complete when they are constructed: no code in broker/ or ha/ assigns an attribute of another object.

Allowed are assignments to
- fields of records that the same module defines (`PendingAck` in group_commit.py);
- an object that the same function has created;
- fields of a `BrokerMessage`, which is filled in on its way from the handler to the append;
- the exceptions below.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "firearrow"
CARRIER = SOURCE / "broker" / "message.py"

# (module, pattern of the target) -> why it is not a method call.
EXCEPTIONS = {
    ("broker/requests/dispatcher.py", "conn.state"): "the slot that a connection has for the state of its service",
    ("broker/send/handler.py", "conn.state.in_flight"): "hot path: PendingReplies.add without the call",
    ("broker/send/handler.py", "put.nums"): "hot path: a counter",
    ("broker/send/handler.py", "put.size"): "hot path: a counter",
    ("broker/send/replies.py", "conn.state.in_flight"): "hot path: a counter",
    ("broker/send/replies.py", "last.state.in_flight"): "hot path: a counter",
    ("broker/send/group_commit.py", "self._stats.put_failed"): "a counter",
    ("broker/dedup/dedup.py", "self.producers.changes"): "hot path: a counter",
    ("broker/deferred/retry.py", "header.*"): "the decoded header of a send, which is redirected to the dead-letter topic",
    ("broker/timer/service.py", "*progress.*"): "the progress record of the timer files",
    ("broker/transaction/recovery.py", "self._ops.written_at"): "set once, by recovery",
    ("ha/raft/raft.py", "self._ready.*"): "the outcome of a step, filled in while it runs",
    ("ha/raft/raft.py", "*progress*"): "the leader's records of its followers",
}


def declared_fields(tree: ast.Module) -> set[str]:
    """The attributes of all classes of a module: annotated fields, slots, and those set by their methods."""
    fields: set[str] = set()
    for node in ast.walk(tree):
        if not isinstance(node, ast.ClassDef):
            continue
        for inner in ast.walk(node):
            if isinstance(inner, ast.AnnAssign) and isinstance(inner.target, ast.Name):
                fields.add(inner.target.id)
            elif isinstance(inner, ast.Assign) and any(isinstance(t, ast.Name) and t.id == "__slots__" for t in inner.targets):
                fields |= {c.value for c in ast.walk(inner.value) if isinstance(c, ast.Constant) and isinstance(c.value, str)}
            elif isinstance(inner, ast.Attribute) and isinstance(inner.ctx, ast.Store) and _name(inner.value) == "self":
                fields.add(inner.attr)
    return fields


def foreign_assignments(tree: ast.AST, own_fields: set[str], carrier_fields: set[str]) -> Iterator[tuple[int, str]]:
    """(line, target) of every assignment to an attribute of another object."""
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        created = _created_in(function)
        for node in _own_nodes(function):
            if isinstance(node, ast.Call) and _name(node.func) == "setattr":
                yield node.lineno, ast.unparse(node)
            if not (isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)):
                continue
            owner = _name(node.value)
            is_carrier = owner in ("message", "half", "committed") and node.attr in carrier_fields
            if owner not in ("self", "cls") and owner not in created and node.attr not in own_fields and not is_carrier:
                yield node.lineno, ast.unparse(node)


def _own_nodes(function: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a function without those of functions inside it."""
    for child in ast.iter_child_nodes(function):
        yield child
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _own_nodes(child)


def _created_in(function: ast.AST) -> set[str]:
    """The variables that hold an object which the function has created, by its class or by a class method."""
    names: set[str] = set()
    for node in _own_nodes(function):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            called = ast.unparse(node.value.func).split(".")
            if any(part[:1].isupper() for part in called):
                names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return names


def _name(node: ast.AST) -> str:
    return node.id if isinstance(node, ast.Name) else ""


def test_no_attribute_of_another_object_is_assigned() -> None:
    carrier_fields = declared_fields(ast.parse(CARRIER.read_text()))
    found = []
    for package in ("broker", "ha"):
        for path in sorted((SOURCE / package).rglob("*.py")):
            tree, module = ast.parse(path.read_text()), path.relative_to(SOURCE).as_posix()
            for line, target in foreign_assignments(tree, declared_fields(tree), carrier_fields):
                if not any(module == where and fnmatch(target, what) for where, what in EXCEPTIONS):
                    found.append(f"{module}:{line}: {target}")
    assert found == [], "\n".join(["give these objects what they need when they are constructed, or call a method:", *found])


def test_the_check_finds_assignments() -> None:
    text = """
class Record:
    mine: int

def wire(broker, record, message):
    broker.hook = 1
    broker.inner.count += 1
    setattr(broker, "other", 2)
    record.mine = 3
    message.body = b""
    new = Thing()
    new.field = 4
    broker.a, self.b = 5, 6
"""
    tree = ast.parse(text)
    found = {target for _, target in foreign_assignments(tree, declared_fields(tree), {"body"})}
    assert found == {"broker.hook", "broker.inner.count", "setattr(broker, 'other', 2)", "broker.a"}
