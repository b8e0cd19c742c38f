"""Frames that a master sends to one slave, as events at times."""

from __future__ import annotations

import struct

import pytest

from firearrow.ha.static.feed import GATHER_BYTES, GATHER_MS, Feed
from firearrow.ha.static.protocol import HaError, ReplicationFrameDecoder, encode_report

SEGMENT = 1000


class Log:
    """A log of numbered bytes in segments."""

    def __init__(self, begin: int, end: int) -> None:
        self.begin = begin
        self.end = end

    def read(self, offset: int, size: int) -> bytes:
        if offset < self.begin:
            return b""
        stop = min(offset + size, offset - offset % SEGMENT + SEGMENT)
        return bytes(place % 251 for place in range(offset, stop))


def feed_of(log: Log) -> Feed:
    return Feed(log, batch_bytes=300, heartbeat_ms=5_000, silence_ms=20_000, now_ms=0)


def taken(frames: list[bytes]) -> list[tuple[int, bytes]]:
    return [frame for data in frames for frame in ReplicationFrameDecoder().feed(data)]


def test_nothing_is_sent_before_the_first_report() -> None:
    feed = feed_of(Log(0, 500))
    assert feed.next_frames(10_000, 0) == []
    assert feed.received(struct.pack(">i", 0), 1) is False  # half a report
    assert feed.next_frames(10_000, 1) == []


def test_frames_have_the_batch_size_and_stay_within_a_segment() -> None:
    feed = feed_of(Log(0, 1200))
    assert feed.received(encode_report(100), 0)
    frames = taken(feed.next_frames(10_000, 0))
    assert [(offset, len(data)) for offset, data in frames] == [(100, 300), (400, 300), (700, 300), (1000, 200)]
    assert b"".join(data for _, data in frames) == bytes(place % 251 for place in range(100, 1200))
    assert feed.next_frames(10_000, 0) == []


def test_portions_are_bounded() -> None:
    feed = feed_of(Log(0, 5000))
    feed.received(encode_report(100), 0)
    assert sum(len(data) for _, data in taken(feed.next_frames(700, 0))) == 700
    assert feed.sent == 800


def test_empty_slave_receives_the_whole_log() -> None:
    feed = feed_of(Log(3000, 5000))
    feed.received(encode_report(0), 0)
    assert taken(feed.next_frames(10, 0))[0][0] == 3000


def test_heartbeat_is_sent_after_silence() -> None:
    log = Log(0, 50)
    feed = feed_of(log)
    feed.received(encode_report(50), 0)
    assert feed.next_frames(100, 4_999) == []
    assert taken(feed.next_frames(100, 5_000)) == [(50, b"")]
    assert feed.next_frames(100, 9_999) == []
    log.end = 60
    assert taken(feed.next_frames(100, 9_999))[0][0] == 50
    assert feed.next_frames(100, 14_998) == []


def test_acknowledged_offset_never_decreases() -> None:
    feed = feed_of(Log(0, 500))
    assert feed.received(encode_report(0), 0)
    feed.next_frames(10_000, 0)
    assert feed.received(encode_report(300) + encode_report(400), 1)
    assert feed.confirmed == 400
    assert not feed.received(encode_report(400), 2)
    assert feed.behind == 100


def test_busy_slave_receives_the_next_piece_after_its_acknowledgement() -> None:
    log = Log(0, 400)
    feed = feed_of(log)
    feed.received(encode_report(100), 0)
    feed.next_frames(10_000, 0)
    log.end = 500
    assert feed.next_frames(10_000, 1) == []
    feed.received(encode_report(399), 2)
    assert feed.next_frames(10_000, 2) == []
    feed.received(encode_report(400), 3)
    assert taken(feed.next_frames(10_000, 3))[0][0] == 400


def test_busy_slave_receives_more_when_much_is_pending_or_after_a_while() -> None:
    log = Log(0, 400)
    feed = feed_of(log)
    feed.received(encode_report(100), 0)
    feed.next_frames(10_000, 0)
    log.end = 410
    assert taken(feed.next_frames(10_000, GATHER_MS))[0][0] == 400
    log.end = 410 + GATHER_BYTES
    assert taken(feed.next_frames(10_000, GATHER_MS))[0][0] == 410


def test_silent_slave_is_detected() -> None:
    feed = feed_of(Log(0, 500))
    feed.received(encode_report(0), 1_000)
    assert not feed.is_silent(21_000)
    assert feed.is_silent(21_001)


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (501, "ends at 500"),
        (-1, "slave of another master"),
        (99, "begins at 100"),
        (int.from_bytes(b"GET / HT", "big"), "slave of another master"),
    ],
)
def test_start_position_outside_the_log_is_rejected(asked: int, words: str) -> None:
    with pytest.raises(HaError, match=words):
        feed_of(Log(100, 500)).received(encode_report(asked), 0)


def test_report_beyond_the_sent_offset_is_rejected() -> None:
    feed = feed_of(Log(0, 500))
    feed.received(encode_report(100), 0)
    with pytest.raises(HaError, match="not a slave of this"):
        feed.received(encode_report(101), 1)


def test_slave_whose_position_was_deleted_is_rejected() -> None:
    log = Log(0, 5000)
    feed = feed_of(log)
    feed.received(encode_report(100), 0)
    log.begin = 1000
    with pytest.raises(HaError, match="which is deleted"):
        feed.next_frames(100, 1)
