"""Asking a client: the broker sends a request on the client's own connection and is called back with the answer.

This is the asyncio face of `BrokerParts.notify` and `BrokerParts.call_client`; the handlers know only the callbacks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from firearrow.net.connection import Connection
from firearrow.wire.frame import Command


def notify(conn: Connection, code: int, ext: Mapping[str, Any], body: bytes) -> None:
    conn.notify(code, ext, body)


def call_client(
    conn: Connection,
    code: int,
    ext: Mapping[str, Any],
    body: bytes,
    timeout_ms: int,
    done: Callable[[Command | None, str], None],
) -> None:
    """Calls `done(answer, "")`, or `done(None, why)` when there is no answer in time."""

    def finished(future: asyncio.Future[Command]) -> None:
        if future.cancelled():
            done(None, "the broker is stopping")
            return
        error = future.exception()
        if error is None:
            done(future.result(), "")
        else:
            done(None, str(error))

    conn.request(code, ext, body, timeout_ms=timeout_ms).add_done_callback(finished)
