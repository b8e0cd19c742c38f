"""Captured traffic between an Apache master and slave."""

from __future__ import annotations

import base64
import json
from pathlib import Path

_FILE = Path(__file__).parent.parent.parent / "fixtures" / "wire" / "ha-5.5.0-master-slave-raw.jsonl"


def captured(direction: str) -> list[tuple[int, bytes]]:
    """Return (time in ms, bytes of one read). `s2c` is the master, `c2s` the slave."""
    lines = [json.loads(line) for line in _FILE.read_text().splitlines()]
    return [
        (line["t"], base64.b64decode(line["raw_b64"])) for line in lines if line.get("dir") == direction and "raw_b64" in line
    ]
