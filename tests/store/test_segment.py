"""Segments: names, lengths, and zeros that never land on a record."""

from __future__ import annotations

import random
import threading
from pathlib import Path

from firearrow.store.disk import RealDisk
from firearrow.store.segment import Segment, create_segment, parse_segment_name, segment_name

SIZE = 4 * 1024 * 1024


def test_names_are_20_digits() -> None:
    assert segment_name(1073741824) == "00000000001073741824"
    assert parse_segment_name("00000000001073741824") == 1073741824
    assert [parse_segment_name(name) for name in ("1073741824", "0000000000107374182x", "x" * 20, "٣" * 20)] == [None] * 4


def test_a_new_segment_has_its_full_length_and_no_blocks(tmp_path: Path) -> None:
    segment = create_segment(RealDisk(), str(tmp_path), SIZE, SIZE)
    stat = Path(segment.path).stat()
    assert (stat.st_size, stat.st_blocks) == (SIZE, 0)
    assert segment.file.next_data(0) is None
    segment.close()


def test_zeros_written_ahead_never_overwrite_a_record(tmp_path: Path) -> None:
    """The housekeeper writes zeros as fast as it can while records are appended at, behind and in front of its position."""
    segment = create_segment(RealDisk(), str(tmp_path), 0, SIZE)
    segment.expect_zeros_from(0)
    done = threading.Event()

    def housekeeper() -> None:
        upto = 0
        while not done.is_set() and upto < SIZE:
            upto = min(SIZE, segment.zeroed_to + 100_000)
            segment.write_zeros(upto)

    thread = threading.Thread(target=housekeeper)
    thread.start()
    rng = random.Random(1)
    written = bytearray()
    while len(written) < SIZE - 70_000:
        record = bytes((rng.randint(1, 255),)) * rng.randint(1, 65_000)
        segment.write(record, len(written))
        written += record
    done.set()
    thread.join()
    assert segment.read(SIZE, 0) == bytes(written).ljust(SIZE, b"\0")
    segment.close()


def test_an_append_past_the_zeros_moves_the_border(tmp_path: Path) -> None:
    segment = create_segment(RealDisk(), str(tmp_path), 0, SIZE)
    segment.expect_zeros_from(0)
    segment.write_zeros(1000)
    segment.write(b"r" * 500, 900)
    assert segment.zeroed_to == 1400
    segment.write_zeros(1200)
    segment.write_zeros(5000)
    assert segment.read(5000, 0) == (bytes(900) + b"r" * 500).ljust(5000, b"\0")
    reopened = Segment(RealDisk(), str(tmp_path), 0, SIZE)
    assert reopened.read(1, 1399) == b"r"
    reopened.close()
    segment.close()
