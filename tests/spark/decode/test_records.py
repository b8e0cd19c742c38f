from __future__ import annotations

import random

from firearrow.wire.message_ids import host_bytes
from firearrow.wire.record import BORN_HOST_V6, FIXED_BYTES_V1, MAGIC_BLANK, Record, encode

A = encode(Record("T", b"first", physical_offset=100))
B = encode(Record("T", b"second", b"a\x01b\x02", physical_offset=100 + len(A)))


def test_all_records_of_a_buffer_are_found() -> None:
    from firearrow.spark.decode.records import find_records
    from firearrow.store.commitlog.scan import Stop

    found = find_records(A + B, 100)

    assert found.records.start.tolist() == [0, len(A)]
    assert (found.end, found.stop) == (len(A + B), Stop.END)


def test_incomplete_record_reports_the_needed_size() -> None:
    from firearrow.spark.decode.records import find_records
    from firearrow.store.commitlog.scan import Stop

    found = find_records(A + B[:-1])

    assert (len(found.records), found.end, found.stop, found.needed) == (1, len(A), Stop.END, len(B))


def test_scan_stops_at_the_end_of_the_log() -> None:
    from firearrow.spark.decode.records import find_records
    from firearrow.store.commitlog.scan import Stop

    assert find_records(A + bytes(8)).stop is Stop.ZERO
    assert find_records(A + (8).to_bytes(4, "big") + MAGIC_BLANK.to_bytes(4, "big", signed=True)).stop is Stop.BLANK
    assert find_records(A + b"somewhere else").stop is Stop.BAD_MAGIC
    assert find_records(A + B, 99).end == 0  # both lie elsewhere
    assert find_records(A + B, None, 0, len(A)).end == len(A)


def test_damaged_bytes_never_raise_or_read_outside_the_buffer() -> None:
    from firearrow.spark.decode.records import find_records

    dice = random.Random(7)
    whole = A + B + encode(Record("T", b"x", sys_flag=BORN_HOST_V6, born_host=host_bytes("::1", 1)))
    for _ in range(3000):
        broken = bytearray(whole[: dice.randrange(len(whole) + 1)])
        for _ in range(dice.randrange(4)):
            if broken:
                broken[dice.randrange(len(broken))] = dice.randrange(256)
        found = find_records(bytes(broken))
        assert 0 <= found.end <= len(broken)
        if len(found.records):
            assert int((found.records.end - found.records.start).min()) >= FIXED_BYTES_V1
            assert int(found.records.end.max()) <= len(broken)
            assert (found.records.property_start <= found.records.end).all()
