"""The rooms of the house may only look upwards, and the front door is light."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import firearrow

ROOT = Path(firearrow.__file__).parent

# A room may import from those it names, and from itself. Modules beside the rooms (settings) are rooms of one file.
MAY_IMPORT = {
    "_native": set(),
    "clock": set(),
    "procfs": set(),
    "atomic_file": set(),
    "wire": {"_native"},
    "config": set(),
    "store": {"wire", "config", "_native", "clock"},
    "net": {"wire", "config", "clock"},
    "namesrv": {"wire", "store", "net", "config", "clock"},
    "broker": {"wire", "store", "net", "config", "clock", "procfs"},
    "ha": {"wire", "store", "net", "broker", "config", "clock"},
    "client": {"wire", "net", "config", "clock", "atomic_file"},
    "aio": {"client"},
    "admin": {"wire", "net", "client", "config", "clock", "procfs"},
    "cli": {"wire", "store", "net", "namesrv", "broker", "ha", "client", "admin", "config", "spark", "clock", "atomic_file"},
    "console": {"wire", "net", "client", "admin", "config", "clock"},
    "spark": {"wire", "store", "client", "admin", "config", "clock", "atomic_file"},
    "testing": {"wire", "store", "net", "namesrv", "broker", "ha", "client", "admin", "config", "clock"},
}


def modules() -> Iterator[tuple[str, Path]]:
    for path in sorted(ROOT.rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        if parts != ("__init__",) and parts != ("__main__",):
            yield parts[0], path


def imported_rooms(path: Path) -> Iterator[tuple[int, str]]:
    """(line, room) of everything of ours that a module imports, wherever in it."""
    for node in ast.walk(ast.parse(path.read_text())):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: say where from: imports are absolute"
            whole = [f"{node.module}.{alias.name}" for alias in node.names]
            names = whole if node.module == "firearrow" else [node.module or ""]
        for name in names:
            if name.startswith("firearrow."):
                yield node.lineno, name.split(".")[1]


@pytest.mark.parametrize(
    ("room", "path"), list(modules()), ids=lambda value: str(value.relative_to(ROOT)) if isinstance(value, Path) else ""
)
def test_a_room_imports_only_from_rooms_above_it(room: str, path: Path) -> None:
    assert room in MAY_IMPORT, f"{path}: a new room needs its place in the order"
    wrong = [
        f"{path}:{line} imports {other}"
        for line, other in imported_rooms(path)
        if other not in MAY_IMPORT[room] and other != room and not other.startswith("__")
    ]
    assert wrong == []


def test_the_order_of_rooms_has_no_circle() -> None:
    placed: set[str] = set()
    left = dict(MAY_IMPORT)
    while left:
        free = [room for room, needs in left.items() if needs <= placed]
        assert free, f"these rooms need each other: {sorted(left)}"
        for room in free:
            placed.add(room)
            del left[room]


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
def test_importing_it_does_not_import_what_is_heavy(module: str, heavy: set[str]) -> None:
    code = LIGHT.format(module=module, heavy=heavy)
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert found.stdout.strip() == "[]"


def test_the_wire_room_has_no_socket_no_clock_and_no_file() -> None:
    forbidden = {"asyncio", "os", "pathlib", "select", "socket", "ssl", "threading", "uvloop"}
    clocks = {"time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "sleep"}
    for room, path in modules():
        if room != "wire":
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            names: list[str] = []
            if isinstance(node, ast.Import):
                names = [alias.name.split(".")[0] for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [(node.module or "").split(".")[0]]
            elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "time":
                assert node.attr not in clocks, f"{path}:{node.lineno} looks at the clock"  # calendars are no clock
            assert forbidden.isdisjoint(names), path


def test_sockets_are_opened_in_the_net_room_only() -> None:
    for room, path in modules():
        if room in ("wire", "store", "namesrv", "broker"):
            opened = [
                node.lineno
                for node in ast.walk(ast.parse(path.read_text()))
                if isinstance(node, ast.Attribute)
                and node.attr in ("create_server", "create_connection", "open_connection", "start_server")
            ]
            assert opened == [], path
