"""The captured conversations under tests/fixtures/wire: frames that Apache's servers and clients of five kinds really sent."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from firearrow.wire.codes import RequestCode

FIXTURES = Path(__file__).parents[1] / "fixtures" / "wire"


@dataclass(frozen=True)
class Captured:
    file: str
    kind: str  # request, oneway, response
    request: RequestCode  # what was asked, also for a response
    header: dict[str, Any]
    header_bytes: bytes
    body: bytes
    binary: bool

    @property
    def frame(self) -> bytes:
        word = (1 << 24 if self.binary else 0) | len(self.header_bytes)
        length = 4 + len(self.header_bytes) + len(self.body)
        return length.to_bytes(4, "big") + word.to_bytes(4, "big") + self.header_bytes + self.body

    @property
    def ext(self) -> dict[str, Any]:
        return self.header.get("extFields") or {}

    def __repr__(self) -> str:
        return f"{self.file}: {self.kind} {self.request.name}"


@cache
def captured() -> tuple[Captured, ...]:
    """Every frame of every file, in the order they were sent."""
    return tuple(frame for path in sorted(FIXTURES.glob("*.jsonl")) for frame in _read(path))


def sessions() -> list[str]:
    return sorted(path.stem for path in FIXTURES.glob("*.jsonl"))


def _read(path: Path) -> list[Captured]:
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return [
        Captured(
            file=path.stem,
            kind=line["kind"],
            request=RequestCode[line["name"]],
            header=line["header"],
            header_bytes=base64.b64decode(line["header_b64"]),
            body=base64.b64decode(line.get("body_b64") or ""),
            binary=line["ser"] == "ROCKETMQ",
        )
        for line in lines
        if "header_b64" in line
    ]
