"""Captured sessions of the real systems (tests/fixtures/wire), and what it means that two answers look alike."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

from firearrow.wire import fastjson
from firearrow.wire.fastjson import ObjectMap

WIRE = Path(__file__).parent.parent / "fixtures" / "wire"


def lines(session: str) -> list[dict[str, Any]]:
    """Captured frames of connections to the broker."""
    all_lines = [json.loads(line) for line in (WIRE / f"{session}.jsonl").read_text().splitlines()]
    return [line for line in all_lines if "header" in line and not line["conn"].startswith("ns")]


def requests(session: str, code: int) -> list[dict[str, Any]]:
    found = [line for line in lines(session) if line["dir"] == "c2s" and line["kind"] != "response" and line["code"] == code]
    assert found, f"no request {code} in {session}"
    return found


def answer(session: str, name: str, code: int = 0) -> dict[str, Any]:
    """The first captured response to requests of that name."""
    for line in lines(session):
        if line["dir"] == "s2c" and line["kind"] == "response" and line["name"] == name and line["code"] == code:
            return line
    raise AssertionError(f"no response {code} to {name} in {session}")


def body(line: dict[str, Any]) -> bytes:
    return base64.b64decode(line.get("body_b64", ""))


def json_body(line: dict[str, Any]) -> Any:
    return fastjson.loads(body(line))


def ext(line: dict[str, Any]) -> dict[str, Any]:
    fields: dict[str, Any] = line["header"].get("extFields") or {}
    return fields


def shape(value: Any) -> Any:
    """A JSON value without what is particular to a moment: keys and types, lists by their first element."""
    if isinstance(value, ObjectMap):
        return ("object keys", [(shape(key), shape(item)) for key, item in value[:1]])
    if isinstance(value, dict):
        return {key: shape(item) for key, item in value.items()}
    if isinstance(value, list):
        return [shape(item) for item in value[:1]]
    return type(value).__name__
