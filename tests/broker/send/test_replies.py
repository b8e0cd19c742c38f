"""Replies that wait, and the count of unanswered requests."""

from __future__ import annotations

from typing import cast

import pytest

from firearrow.broker.send.replies import PendingReplies, Reply, send_replies
from firearrow.net.connection import Connection
from firearrow.wire.codes import ResponseCode
from firearrow.wire.frame import Command, FrameDecoder, encode_response
from tests.broker.fake_peer import FakeConnection


def connection(fake: FakeConnection) -> Connection:
    return cast(Connection, fake)


def test_replies_are_counted_until_they_are_sent() -> None:
    pending, peer = PendingReplies(), FakeConnection()
    pending.add(connection(peer), Command(310), b"a")
    pending.add(connection(peer), Command(310), b"b", on_write=True)
    assert peer.state.in_flight == 2
    on_ack, on_write = pending.take()
    assert ([reply.data for reply in on_ack], [reply.data for reply in on_write]) == ([b"a"], [b"b"])
    assert pending.take() == ([], [])
    send_replies(on_write)
    assert (peer.state.in_flight, peer.written) == (1, [b"b"])


def test_consecutive_replies_to_one_connection_share_a_write() -> None:
    pending, a, b = PendingReplies(), FakeConnection(1), FakeConnection(2)
    for peer, data in ((a, b"1"), (a, b"2"), (b, b"3"), (a, b"4")):
        pending.add(connection(peer), Command(310), data)
    send_replies(pending.take()[0])
    assert (a.written, b.written) == ([b"12", b"4"], [b"3"])
    assert (a.state.in_flight, b.state.in_flight) == (0, 0)


@pytest.mark.parametrize("binary", [False, True])
def test_reply_under_another_code_keeps_its_fields(binary: bool) -> None:
    request = Command(310, opaque=5, binary=binary)
    data = encode_response(request, ResponseCode.SUCCESS, ext={"msgId": "M"})
    reply = Reply(connection(FakeConnection()), request, data).with_code(ResponseCode.FLUSH_SLAVE_TIMEOUT)
    (answer,) = FrameDecoder().feed(reply.data)
    assert (answer.code, answer.opaque, answer.ext["msgId"]) == (ResponseCode.FLUSH_SLAVE_TIMEOUT, 5, "M")
