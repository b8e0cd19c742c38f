"""Limits on the size of folders, files, functions and constructors. An exception needs a reason."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import firearrow

ROOT = Path(firearrow.__file__).parent
MAX_MODULES_PER_FOLDER = 25
MAX_LINES_PER_FILE = 900
MAX_LINES_PER_FUNCTION = 80
MAX_CONSTRUCTOR_PARAMETERS = 10

PUBLIC_KEYWORDS = "public class whose keywords are its documented options"
EXCEPTIONS = {
    "client/producer/producer.py:Producer": PUBLIC_KEYWORDS,
    "client/producer/transaction.py:TransactionProducer": PUBLIC_KEYWORDS,
    "client/consumer/push_consumer.py:PushConsumer": PUBLIC_KEYWORDS,
    "client/producer/in_flight.py:SendAttempt": "one object per send; another object would cost on the hot path",
    "client/consumer/pull_loop.py:PullLoop": "callbacks of the consumer that owns the loop; each is one event of a pull",
    "client/consumer/orderly.py:OrderlyDispatcher": "the consumer's options for orderly consumption, passed through unchanged",
}


def functions() -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """Yield (file:class or function, function) of the whole package."""
    for path in sorted(ROOT.rglob("*.py")):
        file = path.relative_to(ROOT).as_posix()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            for child in ast.iter_child_nodes(node):
                if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                    yield f"{file}:{node.name if isinstance(node, ast.ClassDef) else child.name}", child


def test_folders_have_at_most_25_modules() -> None:
    folders = Counter(path.parent for path in ROOT.rglob("*.py"))
    assert [f"{folder}: {count}" for folder, count in folders.items() if count > MAX_MODULES_PER_FOLDER] == []


def test_files_have_at_most_900_lines() -> None:
    lengths = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in ROOT.rglob("*.py")}
    assert [f"{path}: {lines}" for path, lines in lengths.items() if lines > MAX_LINES_PER_FILE] == []


def test_functions_have_at_most_80_lines() -> None:
    long = {
        name: end - node.lineno + 1
        for name, node in functions()
        if (end := node.end_lineno or 0) - node.lineno >= MAX_LINES_PER_FUNCTION
    }
    assert {name: lines for name, lines in long.items() if name not in EXCEPTIONS} == {}


def test_constructors_have_at_most_10_parameters() -> None:
    many = {}
    for name, node in functions():
        count = len(node.args.args) + len(node.args.kwonlyargs) - 1  # without self
        if node.name == "__init__" and count > MAX_CONSTRUCTOR_PARAMETERS:
            many[name] = count
    assert {name: count for name, count in many.items() if name not in EXCEPTIONS} == {}
