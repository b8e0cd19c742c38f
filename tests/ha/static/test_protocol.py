"""The replication protocol: traffic of Apache's master and slave, bytes in pieces of any size, invalid bytes."""

from __future__ import annotations

import random
import struct

import pytest

from firearrow.ha.static.protocol import HaError, ReplicationFrameDecoder, ReportDecoder, encode_frame, encode_report
from firearrow.store.commitlog.scan import Stop, scan
from tests.ha.static.captured_traffic import captured


def frames_of(pieces: list[bytes]) -> list[tuple[int, bytes]]:
    decoder = ReplicationFrameDecoder()
    return [frame for piece in pieces for frame in decoder.feed(piece)]


def log_of(frames: list[tuple[int, bytes]]) -> bytes:
    """Return the log of adjacent frames."""
    log = b""
    for offset, data in frames:
        assert offset == len(log)
        log += data
    return log


def test_frames_of_apaches_master_form_one_log() -> None:
    log = log_of(frames_of([data for _, data in captured("s2c")]))
    result = scan(log, 0, check_crc=True)
    assert result.stop is Stop.END
    assert result.end == len(log)
    assert len(result) > 100


def test_reports_of_apaches_slave_are_log_ends() -> None:
    decoder = ReportDecoder()
    reports = [offset for _, data in captured("c2s") for offset in decoder.feed(data)]
    assert reports[0] == 0
    assert reports == sorted(reports)
    assert reports[-1] == len(log_of(frames_of([data for _, data in captured("s2c")])))


@pytest.mark.parametrize("seed", range(5))
def test_frames_are_decoded_from_pieces_of_any_size(seed: int) -> None:
    rng = random.Random(seed)
    stream = b"".join(data for _, data in captured("s2c"))
    cuts = sorted(rng.sample(range(len(stream)), 400))
    pieces = [stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    assert log_of(frames_of(pieces)) == log_of(frames_of([stream]))


def test_adjacent_frames_are_joined() -> None:
    stream = encode_frame(100, b"abc") + encode_frame(103, b"de") + encode_frame(105, b"") + encode_frame(900, b"x")
    assert ReplicationFrameDecoder().feed(stream) == [(100, b"abcde"), (900, b"x")]
    assert [ReplicationFrameDecoder().feed(encode_frame(7, b""))] == [[(7, b"")]]


def test_large_frame_in_small_pieces_is_joined_once() -> None:
    data = random.Random(1).randbytes(4 * 1024 * 1024)
    stream = encode_frame(0, data)
    pieces = [stream[at : at + 1000] for at in range(0, len(stream), 1000)]
    assert frames_of(pieces) == [(0, data)]


@pytest.mark.parametrize(
    "head", [struct.pack(">qi", -1, 0), struct.pack(">qi", 0, -1), struct.pack(">qi", 0, 1 << 30), b"SSH-2.0-Open"]
)
def test_invalid_header_is_rejected(head: bytes) -> None:
    with pytest.raises(HaError, match="invalid frame"):
        ReplicationFrameDecoder().feed(head)


def test_reports_are_decoded_from_pieces_of_any_size() -> None:
    decoder = ReportDecoder()
    stream = encode_report(0) + encode_report(5) + encode_report(1 << 40)
    assert [offset for byte in stream for offset in decoder.feed(bytes([byte]))] == [0, 5, 1 << 40]
