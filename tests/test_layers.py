"""Architecture rules: import layers of packages and subpackages, sockets only in net, unique class names, light imports."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import firearrow

ROOT = Path(firearrow.__file__).parent

# Packages that a package may import, besides itself. A module in the package root counts as a package.
MAY_IMPORT = {
    "_native": set(),
    "clock": set(),
    "escaping": set(),
    "procfs": set(),
    "atomic_file": set(),
    "wire": {"_native"},
    "config": set(),
    "store": {"wire", "config", "_native", "clock"},
    "net": {"wire", "config", "clock"},
    "auth": {"wire", "store", "net", "config"},
    "namesrv": {"wire", "store", "net", "auth", "config", "clock"},
    "broker": {"wire", "store", "net", "auth", "config", "clock", "procfs"},
    "ha": {"wire", "store", "net", "auth", "broker", "config", "clock"},
    "client": {"wire", "net", "config", "clock", "atomic_file"},
    "aio": {"client"},
    "admin": {"wire", "net", "client", "config", "clock", "procfs", "escaping"},
    "cli": {
        "wire",
        "store",
        "net",
        "auth",
        "namesrv",
        "broker",
        "ha",
        "client",
        "admin",
        "config",
        "spark",
        "clock",
        "atomic_file",
        "escaping",
    },
    "console": {"wire", "net", "client", "admin", "config", "clock"},
    "spark": {"wire", "store", "client", "admin", "config", "clock", "atomic_file"},
    "testing": {"wire", "store", "net", "namesrv", "broker", "ha", "client", "admin", "config", "clock"},
}


# Sibling subpackages that a subpackage may import, besides itself and the modules directly in its package ("." if it may
# import these). A package without an entry has no rules for its subpackages.
SUBPACKAGES_MAY_IMPORT = {
    "admin": {"doctor": {"."}},
    "broker": {
        "sql92": set(),
        "admin": {".", "observability", "pull", "requests", "tables"},
        "auth": {".", "requests"},
        "dedup": {".", "requests", "send", "tables", "timer"},
        "deferred": {".", "requests", "send", "tables"},
        "observability": {".", "tables", "timer"},
        "pull": {".", "observability", "requests", "sql92"},
        "requests": {".", "pull", "roles", "send", "tables"},
        "roles": {".", "dedup", "pull", "requests", "send", "tables", "transaction"},
        "send": {".", "dedup", "deferred", "observability", "pull", "requests", "transaction"},
        "tables": {".", "pull", "requests"},
        "timer": {".", "deferred", "requests", "send"},
        "transaction": {".", "deferred", "requests", "send", "tables"},
    },
    "client": {
        "connection": {".", "producer"},
        "consumer": {".", "connection", "trace"},
        "producer": {".", "connection", "trace"},
        "sync": {".", "consumer", "producer"},
        "trace": {".", "producer"},
    },
    "ha": {"raft": set(), "peers": set(), "static": {".", "peers"}, "elected": {".", "peers", "raft"}},
    "spark": {
        "decode": {"."},
        "read": {".", "decode", "write"},
        "write": {".", "decode", "read"},
        "pipelines": {".", "decode", "read", "write"},
        "reports": {".", "pipelines"},
    },
    "store": {"commitlog": {".", "key_index"}, "key_index": {".", "commitlog"}, "timer": {".", "commitlog"}},
    "wire": {"bodies": {"."}, "headers": {"."}},
}

# The blocking clients have the names of the asyncio clients that they wrap.
BLOCKING_AND_ASYNC = {"Admin", "Producer", "PullConsumer", "PushConsumer", "TransactionProducer"}

SOCKET_MODULES = {"select", "selectors", "socket", "socketserver"}
SOCKET_CALLS = {
    "connect_accepted_socket",
    "create_connection",
    "create_datagram_endpoint",
    "create_server",
    "create_unix_connection",
    "create_unix_server",
    "open_connection",
    "open_unix_connection",
    "start_server",
    "start_unix_server",
}


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def modules() -> Iterator[tuple[str, Path]]:
    """Yield (package, path) of every module, except the entry points in the package root."""
    for path in sorted(ROOT.rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        if parts not in (("__init__",), ("__main__",)):
            yield parts[0], path


def imported(path: Path) -> Iterator[tuple[int, tuple[str, ...]]]:
    """Yield (line, dotted path below `firearrow`) of every import, also inside functions."""
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: use absolute imports"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            if name.startswith("firearrow."):
                yield node.lineno, tuple(name.split(".")[1:])


@pytest.mark.parametrize(
    ("package", "path"),
    list(modules()),
    ids=lambda value: str(value.relative_to(ROOT)) if isinstance(value, Path) else "",
)
def test_module_imports_only_allowed_packages(package: str, path: Path) -> None:
    assert package in MAY_IMPORT, f"{path}: add the new package to MAY_IMPORT"
    allowed = MAY_IMPORT[package] | {package}
    wrong = [
        f"{path}:{line} imports {names[0]}"
        for line, names in imported(path)
        if names[0] not in allowed and not names[0].startswith("__")
    ]
    wrong += [f"{path}:{line} imports {name}" for line, name in forbidden_siblings(package, path)]
    assert wrong == []


def forbidden_siblings(package: str, path: Path) -> Iterator[tuple[int, str]]:
    parts = path.relative_to(ROOT).parts
    if package not in SUBPACKAGES_MAY_IMPORT or len(parts) < 3:
        return
    rules = SUBPACKAGES_MAY_IMPORT[package]
    assert parts[1] in rules, f"{path}: add the new subpackage to SUBPACKAGES_MAY_IMPORT"
    for line, names in imported(path):
        if names[0] == package:
            sibling = names[1] if (ROOT / package / names[1]).is_dir() else "."
            if sibling not in (parts[1], *rules[parts[1]]):
                yield line, ".".join(names)


def test_packages_have_no_import_cycle() -> None:
    placed: set[str] = set()
    remaining = dict(MAY_IMPORT)
    while remaining:
        free = [package for package, needed in remaining.items() if needed <= placed]
        assert free, f"these packages import each other: {sorted(remaining)}"
        for package in free:
            placed.add(package)
            del remaining[package]


def test_only_net_uses_sockets() -> None:
    wrong = []
    for package, path in modules():
        if package == "net":
            continue
        for node in ast.walk(parsed(path)):
            names: list[str] = []
            if isinstance(node, ast.Import):
                names = [alias.name.split(".")[0] for alias in node.names if alias.name.split(".")[0] in SOCKET_MODULES]
            elif isinstance(node, ast.ImportFrom):
                names = [node.module or ""] if (node.module or "").split(".")[0] in SOCKET_MODULES else []
            elif isinstance(node, ast.Attribute) and node.attr in SOCKET_CALLS:
                names = [node.attr]
            wrong += [f"{path}:{node.lineno} uses {name}" for name in names]  # type: ignore[attr-defined]
    assert wrong == []


def test_public_class_names_are_unique() -> None:
    found: dict[str, list[str]] = {}
    for _, path in modules():
        for node in parsed(path).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found.setdefault(node.name, []).append(str(path.relative_to(ROOT)))
    duplicates = {name: paths for name, paths in found.items() if len(paths) > 1}
    assert {name: paths for name, paths in duplicates.items() if name not in BLOCKING_AND_ASYNC} == {}


LIGHT = "import sys; import {module}; print(sorted({{name.split('.')[0] for name in sys.modules}} & {heavy!r}))"


@pytest.mark.parametrize(
    ("module", "heavy"),
    [
        ("firearrow", {"numpy", "typer", "rich", "uvloop", "asyncio", "pyspark"}),
        ("firearrow.wire.frame", {"numpy", "typer", "rich", "asyncio"}),
        ("firearrow.net.server", {"numpy", "typer", "rich"}),
        ("firearrow.namesrv.server", {"numpy", "typer", "rich"}),
        ("firearrow.cli.main", {"numpy", "typer", "rich", "asyncio", "uvloop", "orjson"}),
    ],
)
def test_import_does_not_load_heavy_modules(module: str, heavy: set[str]) -> None:
    code = LIGHT.format(module=module, heavy=heavy)
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert found.stdout.strip() == "[]"


def test_wire_uses_no_socket_clock_or_file() -> None:
    forbidden = {"asyncio", "os", "pathlib", "select", "socket", "ssl", "threading", "uvloop"}
    clocks = {"time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "sleep"}
    for package, path in modules():
        if package != "wire":
            continue
        for node in ast.walk(parsed(path)):
            names: list[str] = []
            if isinstance(node, ast.Import):
                names = [alias.name.split(".")[0] for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [(node.module or "").split(".")[0]]
            elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "time":
                assert node.attr not in clocks, f"{path}:{node.lineno} reads the clock"  # calendar functions are allowed
            assert forbidden.isdisjoint(names), path
