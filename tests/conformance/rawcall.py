"""One remoting call over a new socket, independent of the code under test."""

from __future__ import annotations

import json
import socket
import struct
from typing import Any


def call(
    address: str, code: int, ext: dict[str, str] | None = None, body: bytes = b"", timeout_s: float = 30.0
) -> tuple[dict[str, Any], bytes]:
    """Send one request with a JSON header and return the header and the body of the response."""
    host, port = address.rsplit(":", 1)
    header = json.dumps(
        {"code": code, "language": "OTHER", "version": 409, "opaque": 1, "flag": 0, "extFields": ext or {}}
    ).encode()
    with socket.create_connection((host, int(port)), timeout=timeout_s) as link:
        link.sendall(struct.pack(">ii", 4 + len(header) + len(body), len(header)) + header + body)
        while True:
            (length,) = struct.unpack(">i", _exactly(link, 4))
            frame = _exactly(link, length)
            size = struct.unpack_from(">i", frame)[0] & 0xFFFFFF
            answer = json.loads(frame[4 : 4 + size])
            if answer["flag"] & 1:
                return answer, frame[4 + size :]


def has_route(namesrv: str, topic: str) -> bool:
    try:
        return bool(call(namesrv, 105, {"topic": topic})[0]["code"] == 0)
    except OSError:
        return False


def route(namesrv: str, topic: str) -> dict[str, Any]:
    answer, body = call(namesrv, 105, {"topic": topic, "acceptStandardJsonOnly": "true"})
    if answer["code"] != 0:
        raise LookupError(f"no route to {topic}: {answer}")
    value: dict[str, Any] = json.loads(body)
    return value


def _exactly(link: socket.socket, count: int) -> bytes:
    got = bytearray()
    while len(got) < count:
        chunk = link.recv(count - len(got))
        if not chunk:
            raise ConnectionError("the server closed the connection")
        got += chunk
    return bytes(got)
