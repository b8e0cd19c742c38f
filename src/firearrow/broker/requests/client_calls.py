"""Requests from the broker to a client, on the client's own connection.

The asyncio implementation of `BrokerContext.notify` and `BrokerContext.call_client`; the handlers know only the callbacks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from firearrow.net.connection import Connection
from firearrow.wire.frame import Command
from firearrow.wire.header_schema import Header, request_code


def notify(conn: Connection, header: Header, body: bytes) -> None:
    conn.notify(request_code(header), header.encode(), body)


def call_client(
    conn: Connection,
    header: Header,
    body: bytes,
    timeout_ms: int,
    done: Callable[[Command | None, str], None],
) -> None:
    """Call `done(response, "")`, or `done(None, reason)` without a response in time."""

    def finished(future: asyncio.Future[Command]) -> None:
        if future.cancelled():
            done(None, "the broker is stopping")
            return
        error = future.exception()
        if error is None:
            done(future.result(), "")
        else:
            done(None, str(error))

    conn.request(request_code(header), header.encode(), body, timeout_ms=timeout_ms).add_done_callback(finished)
