"""Columnar scans of good, damaged and arbitrary bytes, compared with the decoder of wire/record.py."""

from __future__ import annotations

import random
import struct
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from firearrow.store.commitlog import scan as scan_module
from firearrow.store.commitlog.scan import ScanResult, Stop, scan, starts, walk
from firearrow.wire.errors import ProtocolError
from firearrow.wire.java_hash import hash_code
from firearrow.wire.record import MAGIC_BLANK, MAGIC_V1, MAGIC_V2, Record, decode, encode
from tests.store.archives import manifest, unpack
from tests.store.index_model import parse_properties

BASE = 1 << 30
STORE_MS = 1_794_785_474_933

i32 = st.integers(-(1 << 31), (1 << 31) - 1)
i64 = st.integers(-(1 << 63), (1 << 63) - 1)
texts = st.text(st.characters(exclude_characters="\x01\x02", exclude_categories=["Cs"]), max_size=10)
values = st.one_of(st.sampled_from(["", "a", "TagA", "k1 k2", " k  ", "x\x01y"]), texts)
segments = st.tuples(st.sampled_from(["UNIQ_KEY", "KEYS", "TAGS", "WAIT", "TAGSX", "XTAGS", ""]), values).map("\x01".join)
blocks = st.lists(st.one_of(segments, texts), max_size=5).map(lambda parts: "\x02".join(parts).encode())
any_blocks = st.one_of(blocks, blocks.map(lambda block: block + b"\x02"), st.binary(max_size=30))
beginnings = st.sampled_from([struct.pack(">ii", size, MAGIC_V1) for size in (91, 95, 120)])


@st.composite
def records(draw: st.DrawFn) -> Record:
    v6_born, v6_store = draw(st.booleans()), draw(st.booleans())
    return Record(
        topic=draw(st.sampled_from(["T", "Orders", "主题", "x" * 127])),
        body=draw(st.binary(max_size=20)),
        properties=draw(any_blocks),
        queue_id=draw(i32),
        queue_offset=draw(i64),
        sys_flag=draw(st.sampled_from([0, 1, 4, 8, 12])) | 0x10 * v6_born | 0x20 * v6_store,
        born_host=bytes(20 if v6_born else 8),
        store_timestamp=draw(i64),
        store_host=bytes(20 if v6_store else 8),
        version=draw(st.sampled_from([1, 1, 2])),
    )


def laid_out(given_records: list[Record], base: int = BASE) -> tuple[list[Record], bytes]:
    """Return the records with consecutive physical offsets, and their bytes."""
    placed, data = [], b""
    for record in given_records:
        placed.append(replace(record, physical_offset=base + len(data)))
        data += encode(placed[-1])
    return placed, data


def check(result: ScanResult, expected: list[Record], data: bytes) -> None:
    assert result.offset.tolist() == [r.physical_offset for r in expected]
    assert result.size.tolist() == [r.total_size for r in expected]
    assert result.queue_id.tolist() == [r.queue_id for r in expected]
    assert result.queue_offset.tolist() == [r.queue_offset for r in expected]
    assert result.sys_flag.tolist() == [r.sys_flag for r in expected]
    assert result.store_ms.tolist() == [r.store_timestamp for r in expected]
    assert [result.topics[i] for i in result.topic_id] == [r.topic for r in expected]
    stored = [data[a : a + n] for a, n in zip(result.property_start, result.property_length, strict=True)]
    assert stored == [r.properties for r in expected]
    tags = [parse_properties(r.properties).get(b"TAGS", b"").decode("utf-8", "replace") for r in expected]
    assert result.tags_code.tolist() == [hash_code(tag) for tag in tags]


@given(st.lists(records(), max_size=8), st.integers(0, 40), st.booleans())
def test_scan_returns_the_complete_records_of_the_buffer(given_records: list[Record], cut: int, check_crc: bool) -> None:
    placed, data = laid_out(given_records)
    torn = data[: len(data) - cut] if cut else data
    result = scan(torn, BASE, check_crc=check_crc)
    whole = [r for r in placed if r.physical_offset - BASE + r.total_size <= len(torn)]
    check(result, whole, torn)
    assert result.stop is Stop.END
    assert result.end == sum(r.total_size for r in whole)
    if len(whole) < len(placed) and len(torn) - result.end >= 8:
        assert result.needed == placed[len(whole)].total_size


@pytest.mark.parametrize(
    ("tail", "stop"),
    [
        (struct.pack(">ii", 500, MAGIC_BLANK) + bytes(50), Stop.BLANK),
        (bytes(200), Stop.ZERO),
        (struct.pack(">ii", 500, 0) + bytes(500), Stop.BAD_MAGIC),
        (b"\xff" * 100, Stop.BAD_MAGIC),
        (struct.pack(">ii", 90, MAGIC_V1) + bytes(200), Stop.BAD_SIZE),
        (struct.pack(">ii", -1, MAGIC_V2) + bytes(200), Stop.BAD_SIZE),
        (struct.pack(">ii", 100, MAGIC_V1) + bytes(200), Stop.BAD_SIZE),
        (struct.pack(">ii", 1 << 30, MAGIC_V1) + bytes(200), Stop.END),
        (b"\x00" * 7, Stop.END),
    ],
)
def test_scan_stops_at_bytes_that_are_no_record(tail: bytes, stop: Stop) -> None:
    placed, data = laid_out([Record("T", b"body", b"TAGS\x01a\x02"), Record("U", b"", b"")])
    result = scan(data + tail, BASE, check_crc=True)
    check(result, placed, data)
    assert (result.end, result.stop) == (len(data), stop)


def test_scan_stops_at_a_record_with_a_foreign_physical_offset() -> None:
    placed, data = laid_out([Record("T", b"a"), Record("T", b"b"), Record("T", b"c")])
    stale = encode(replace(placed[2], physical_offset=placed[2].physical_offset + 1))
    result = scan(data[: -len(stale)] + stale, BASE, check_crc=False)
    check(result, placed[:2], data)
    assert (result.end, result.stop) == (len(data) - len(stale), Stop.WRONG_OFFSET)


@pytest.mark.parametrize("length", [50, 10_000])
def test_flipped_bit_in_a_body_is_detected_only_with_check_crc(length: int) -> None:
    placed, data = laid_out([Record("T", letter * length) for letter in (b"a", b"b", b"c")])
    check(scan(data, BASE, check_crc=True), placed, data)
    flipped = data.replace(b"b" * length, b"b" * (length - 1) + b"c")
    check(scan(flipped, BASE, check_crc=False), placed, data)
    result = scan(flipped, BASE, check_crc=True)
    check(result, placed[:1], data)
    assert (result.end, result.stop, result.needed) == (placed[0].total_size, Stop.BAD_CRC, placed[1].total_size)


def plain_scan(data: bytes) -> list[Record]:
    found: list[Record] = []
    position = 0
    while True:
        try:
            record = decode(data[position:])
        except ProtocolError:
            return found
        if record.physical_offset != BASE + position:
            return found
        found.append(record)
        position += record.total_size


@given(st.lists(records(), min_size=1, max_size=6), st.data())
def test_scan_of_damaged_records_ends_where_the_plain_decoder_ends(given_records: list[Record], data: st.DataObject) -> None:
    _, good = laid_out(given_records)
    damaged = bytearray(good)
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(good) - 1))
        damaged[at : at + 4] = data.draw(st.binary(min_size=1, max_size=4))
    image = bytes(damaged)
    result = scan(image, BASE, check_crc=True)
    assume("\ufffd" not in "".join(result.topics))  # the plain decoder refuses a topic that is not UTF-8
    check(result, plain_scan(image), image)


@given(
    st.lists(
        st.one_of(st.binary(max_size=60), st.sampled_from([struct.pack(">ii", n, MAGIC_V1) for n in (91, 95, 120)])), max_size=8
    )
)
def test_scan_never_raises_for_arbitrary_bytes(pieces: list[bytes]) -> None:
    data = b"".join(pieces)
    for check_crc in (True, False):
        result = scan(data, 0, check_crc=check_crc)
        assert 0 <= result.end <= len(data)
        assert int(result.size.sum()) == result.end


@pytest.mark.parametrize("sys_flag", [0x10, 0x20, 0x30])
@pytest.mark.parametrize("magic", [MAGIC_V1, MAGIC_V2])
def test_record_too_short_for_its_hosts_at_the_end_of_the_buffer(sys_flag: int, magic: int) -> None:
    data = struct.pack(">ii28xi51x", 91, magic, sys_flag)
    assert len(data) == 91
    result = scan(data, 0, check_crc=True)
    assert (len(result), result.end, result.stop) == (0, 0, Stop.BAD_SIZE)


def test_scan_of_more_records_than_one_property_group() -> None:
    placed, data = laid_out([Record("TU"[i % 2], b"", b"TAGS\x01%d" % i if i % 3 else b"") for i in range(5_000)])
    result = scan(data, BASE, check_crc=True)
    check(result, placed, data)
    assert len(result.spans) > 1
    assert sum(group.count for group in result.spans) == 5_000


def test_tags_code_in_the_schedule_topic_is_the_delivery_time() -> None:
    def delayed(topic: str, block: bytes) -> Record:
        return Record(topic, b"", block, store_timestamp=STORE_MS)

    _, data = laid_out(
        [
            delayed("SCHEDULE_TOPIC_XXXX", b"DELAY\x013\x02TAGS\x01a\x02"),
            delayed("SCHEDULE_TOPIC_XXXX", b"TAGS\x01a\x02DELAY\x0199"),
            delayed("SCHEDULE_TOPIC_XXXX", b"TAGS\x01a\x02DELAY\x010\x02"),
            delayed("SCHEDULE_TOPIC_XXXX", b"TAGS\x01a\x02DELAY\x01soon\x02"),
            delayed("T", b"DELAY\x013\x02TAGS\x01a\x02"),
        ]
    )
    codes = scan(data, BASE, check_crc=True).tags_code.tolist()
    assert codes == [STORE_MS + 10_000, STORE_MS + 7_200_000, 97, 97, 97]
    codes = scan(data, BASE, check_crc=True, delay_levels_ms=(7, 8)).tags_code.tolist()
    assert codes[:2] == [STORE_MS + 8, STORE_MS + 8]


@pytest.mark.parametrize("case", ["a-clean", "b-crash", "c1-torn-tail", "c2-bit-flip", "d-retention"])
def test_scan_of_logs_written_by_apache_matches_their_manifests(tmp_path: Path, case: str) -> None:
    unpack(case, tmp_path)
    expected = manifest(case)["messages"]
    rows: list[dict[str, object]] = []
    for segment in sorted((tmp_path / "store" / "commitlog").iterdir()):
        found = scan(segment.read_bytes(), int(segment.name), check_crc=True)
        for i in range(len(found)):
            rows.append(
                {
                    "topic": found.topics[found.topic_id[i]],
                    "queueId": found.queue_id[i],
                    "queueOffset": found.queue_offset[i],
                    "commitLogOffset": found.offset[i],
                    "size": found.size[i],
                    "sysFlag": found.sys_flag[i],
                    "storeTimestamp": found.store_ms[i],
                    "tagsCode": found.tags_code[i],
                }
            )
    assert len(rows) == len(expected)
    for row, message in zip(rows, expected, strict=True):
        assert row == {key: message[key] for key in row}


BYTES = 400_000


def random_log(chance: random.Random, *, largest: int, body: bytes = b"") -> bytes:
    """Return records of random sizes up to about `largest`, each with `body` somewhere inside its body."""
    made: list[bytes] = []
    at = 0
    while at < BYTES:
        around = [bytes(chance.randrange(largest)), b"x" * chance.randrange(20)]
        made.append(encode(Record(topic="T", body=body.join(around), version=chance.choice((1, 2)), physical_offset=at)))
        at += len(made[-1])
    return b"".join(made)


def check_starts(data: bytes, position: int = 0, limit: int | None = None) -> int:
    found, *rest = starts(data, position, limit)
    expected, *expected_rest = walk(data, position, limit)
    assert found.tolist() == expected
    assert rest == expected_rest
    return len(expected)


@pytest.mark.parametrize("largest", [1, 300, 1_500, 30_000])
def test_starts_finds_the_same_records_as_walk(largest: int) -> None:
    data = random_log(random.Random(largest), largest=largest)
    count = check_starts(data)
    assert count > 10
    second = walk(data)[0][1]
    check_starts(data, second)
    check_starts(data, 0, len(data) // 2)
    check_starts(data[:-5])
    check_starts(data + bytes(40_000))


def test_starts_walks_only_the_end_of_a_log_of_small_records(monkeypatch: pytest.MonkeyPatch) -> None:
    data = random_log(random.Random(1), largest=300)
    positions_walked: list[int] = []

    def recording_walk(buffer: bytes, position: int = 0, limit: int | None = None) -> tuple[list[int], int, Stop, int]:
        positions_walked.append(position)
        return walk(buffer, position, limit)

    monkeypatch.setattr(scan_module, "walk", recording_walk)
    found = starts(data)[0]
    assert positions_walked[0] > len(data) * 9 // 10
    assert np.array_equal(found, walk(data)[0])


@pytest.mark.parametrize(("version", "magic"), [(1, MAGIC_V1), (2, MAGIC_V2)])
def test_starts_ignores_records_and_magic_numbers_inside_bodies(version: int, magic: int) -> None:
    inner = encode(Record(topic="T", body=b"inner", version=version))
    check_starts(random_log(random.Random(2), largest=200, body=inner))
    check_starts(random_log(random.Random(3), largest=200, body=magic.to_bytes(4, "big", signed=True) * 9))


def test_starts_agrees_with_walk_on_damaged_records() -> None:
    chance = random.Random(4)
    good = random_log(chance, largest=400)
    positions = walk(good)[0]
    shorter = 0
    for _ in range(200):
        data = bytearray(good)
        at = chance.choice(positions) + chance.randrange(8)  # only size and magic are read
        data[at] = chance.randrange(256)
        shorter += check_starts(bytes(data)) < len(positions)
    assert shorter > 50


def test_starts_of_empty_zero_or_foreign_bytes() -> None:
    for data in (b"", bytes(7), bytes(BYTES), b"\xff" * BYTES):
        assert check_starts(data) == 0
