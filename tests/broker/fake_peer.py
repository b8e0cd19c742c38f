"""A connection that is only a name, and what was said to it."""

from __future__ import annotations

from typing import Any

from firearrow.broker.requests.dispatcher import ConnectionState


class FakeConnection:
    def __init__(self, port: int = 40000, ip: str = "10.0.0.9") -> None:
        self.peer_ip, self.peer_port = ip, port
        self.peer_host = bytes(map(int, ip.split("."))) + port.to_bytes(4, "big")
        self.closed = False
        self.closed_because = ""
        self.written: list[bytes] = []
        self.state: Any = ConnectionState()
        self.takes_files = False
        self.must_wait = False

    @property
    def peer(self) -> str:
        return f"{self.peer_ip}:{self.peer_port}"

    def write(self, data: bytes) -> None:
        self.written.append(data)

    def note_response(self, size: int) -> None:
        pass

    def close(self, reason: str) -> None:
        self.closed = True
        self.closed_because = reason

    def __repr__(self) -> str:
        return f"<{self.peer}>"
