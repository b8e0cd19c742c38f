"""Sealed records: whatever is done to them on the way ends the connection."""

from __future__ import annotations

import pytest

from firearrow.ha.peers.sealing import MAX_RECORD, TAG_BYTES, Opener, Sealer, SealError

KEY = bytes(range(32))


def sealed(*data: bytes) -> list[bytes]:
    sealer = Sealer(KEY)
    return [b"".join(sealer.seal([one])) for one in data]


def test_data_is_returned_however_it_is_split() -> None:
    stream = b"".join(sealed(b"one", b"", b"two" * 1000))
    bytewise = Opener(KEY)
    assert Opener(KEY).feed(stream) == b"one" + b"two" * 1000
    assert b"".join(bytewise.feed(stream[at : at + 1]) for at in range(len(stream))) == b"one" + b"two" * 1000


def test_parts_are_one_record() -> None:
    assert b"".join(Sealer(KEY).seal([b"he", b"llo"])) == sealed(b"hello")[0]


def test_incomplete_record_is_not_returned() -> None:
    opener = Opener(KEY)
    (record,) = sealed(b"hello")
    assert opener.feed(record[:-1]) == b""
    assert opener.feed(record[-1:]) == b"hello"


@pytest.mark.parametrize("at", [4, 8, 9, 9 + TAG_BYTES - 1])
def test_changed_byte_is_detected(at: int) -> None:
    record = bytearray(sealed(b"hello")[0])
    record[at] ^= 1
    with pytest.raises(SealError, match="wrong authentication code"):
        Opener(KEY).feed(bytes(record))


def test_changed_length_is_detected() -> None:
    one, two = sealed(b"hello", b"world")
    with pytest.raises(SealError):
        Opener(KEY).feed(b"\x00\x00\x00\x04" + one[4:] + two)


@pytest.mark.parametrize("order", [(0, 0), (1,), (1, 0), (0, 2)])
def test_repeated_dropped_and_moved_records_are_detected(order: tuple[int, ...]) -> None:
    records = sealed(b"a", b"b", b"c")
    with pytest.raises(SealError):
        Opener(KEY).feed(b"".join(records[index] for index in order))


def test_record_of_the_other_direction_is_detected() -> None:
    with pytest.raises(SealError):
        Opener(bytes(32)).feed(sealed(b"hello")[0])


def test_long_record_is_rejected_before_it_arrives() -> None:
    with pytest.raises(SealError, match="is announced"):
        Opener(KEY).feed((MAX_RECORD + 1).to_bytes(4, "big") + bytes(TAG_BYTES))
