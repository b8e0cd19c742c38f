"""Recorded results of Apache RocketMQ 5.5.0 for the cases of sql92_cases: tests/fixtures/sql92/verdicts.jsonl.

The first line is {"messages": n, "digest": ...} of the messages that the verdicts are about, every other line
{"expression": text, "verdicts": a letter for each message, or null where the expression does not compile}.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.broker.sql92_cases import MESSAGES

FILE = Path(__file__).parent.parent / "fixtures" / "sql92" / "verdicts.jsonl"


@dataclass(frozen=True)
class Case:
    expression: str
    verdicts: str | None


def load() -> list[Case]:
    head, *lines = FILE.read_text().splitlines()
    assert json.loads(head) == _head(), "the messages have changed since the verdicts were recorded"
    return [Case(**json.loads(line)) for line in lines]


def save(expressions: Sequence[str], verdicts: Sequence[str | None]) -> None:
    FILE.parent.mkdir(parents=True, exist_ok=True)
    lines = [_head(), *({"expression": e, "verdicts": v} for e, v in zip(expressions, verdicts, strict=True))]
    FILE.write_text("".join(json.dumps(line) + "\n" for line in lines))


def selected(verdicts: str | None) -> str | None:
    """The same with only the difference that a consumer sees: T for a message it gets, a point for one it does not."""
    return None if verdicts is None else "".join(letter if letter == "T" else "." for letter in verdicts)


def _head() -> dict[str, object]:
    return {"messages": len(MESSAGES), "digest": hashlib.sha256("\n".join(MESSAGES).encode()).hexdigest()}
