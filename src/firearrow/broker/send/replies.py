"""Replies that are built and must not leave yet, and the count of unanswered requests of each connection.

`on_ack` are sent when the messages they report are acknowledged, `on_write` when these are written (WAIT=false). `GroupCommit`
takes both lists with every write. `conn.state.in_flight` is the number of replies that a connection waits for: it rises when a
reply is added and falls when it is sent, in this module only. The exception is `SendHandler`, which repeats `add` inline because
a call per message is measurable.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from firearrow.net.server import Connection
from firearrow.wire.frame import Command, replace_success_code


class Reply(NamedTuple):
    conn: Connection
    request: Command
    data: bytes

    def with_code(self, code: int) -> Reply:
        """Return this reply under another response code: 10, 11 and 12 carry the same fields as success."""
        return Reply(self.conn, self.request, replace_success_code(self.data, code, binary=self.request.binary))


# The constructor of a named tuple is a Python function; this is not, and takes half the time.
quick_reply: Callable[[tuple[Connection, Command, bytes]], Reply] = partial(tuple.__new__, Reply)


class PendingReplies:
    __slots__ = ("on_ack", "on_write")

    def __init__(self) -> None:
        self.on_ack: list[Reply] = []
        self.on_write: list[Reply] = []

    def add(self, conn: Connection, request: Command, data: bytes, *, on_write: bool = False) -> None:
        conn.state.in_flight += 1
        (self.on_write if on_write else self.on_ack).append(quick_reply((conn, request, data)))

    def take(self) -> tuple[list[Reply], list[Reply]]:
        """Remove and return all replies: (on_ack, on_write)."""
        taken = self.on_ack, self.on_write
        self.on_ack, self.on_write = [], []
        return taken


def send_replies(replies: Sequence[Reply]) -> None:
    """Send replies. Consecutive replies to one connection share a write."""
    if len(replies) == 1:
        conn, _, data = replies[0]
        conn.state.in_flight -= 1
        conn.write(data)
        return
    parts: list[bytes] = []
    last = None
    for conn, _, data in replies:
        if conn is not last:
            if last is not None:
                last.state.in_flight -= len(parts)
                last.write(b"".join(parts))
                parts.clear()
            last = conn
        parts.append(data)
    if last is not None:
        last.state.in_flight -= len(parts)
        last.write(b"".join(parts))
