"""Segments: names, lengths, reading and writing at log offsets."""

from __future__ import annotations

from pathlib import Path

from firearrow.store.commitlog.segment import Segment, create_segment, parse_segment_name, segment_name
from firearrow.store.filesystem import RealDisk

SIZE = 4 * 1024 * 1024


def test_segment_names_have_20_digits() -> None:
    assert segment_name(1073741824) == "00000000001073741824"
    assert parse_segment_name("00000000001073741824") == 1073741824
    assert [parse_segment_name(name) for name in ("1073741824", "0000000000107374182x", "x" * 20, "٣" * 20)] == [None] * 4


def test_new_segment_has_its_full_length_and_no_blocks(tmp_path: Path) -> None:
    segment = create_segment(RealDisk(), str(tmp_path), SIZE, SIZE)
    stat = Path(segment.path).stat()
    assert (stat.st_size, stat.st_blocks) == (SIZE, 0)
    assert segment.file.next_data(0) is None
    segment.close()


def test_segment_reads_back_at_its_log_offset_after_reopening(tmp_path: Path) -> None:
    segment = create_segment(RealDisk(), str(tmp_path), SIZE, SIZE)
    segment.write(b"record", SIZE + 900)
    assert segment.read(8, SIZE + 899) == b"\0record\0"
    segment.close()
    reopened = Segment(RealDisk(), str(tmp_path), SIZE, SIZE)
    assert reopened.read(6, SIZE + 900) == b"record"
    reopened.close()
