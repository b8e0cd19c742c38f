"""Many records side by side are found to be what a walk from one to the next finds."""

from __future__ import annotations

import random

import numpy as np
import pytest

from firearrow.store.commitlog import scan
from firearrow.store.commitlog.scan import Stop, starts, walk
from firearrow.wire.record import MAGIC_V1, MAGIC_V2, Record, encode

BYTES = 400_000


def log(chance: random.Random, *, largest: int, body: bytes = b"") -> bytes:
    """Records of all sizes up to about the largest; `body` is somewhere in each."""
    made: list[bytes] = []
    at = 0
    while at < BYTES:
        around = [bytes(chance.randrange(largest)), b"x" * chance.randrange(20)]
        made.append(encode(Record(topic="T", body=body.join(around), version=chance.choice((1, 2)), physical_offset=at)))
        at += len(made[-1])
    return b"".join(made)


def check(data: bytes, position: int = 0, limit: int | None = None) -> int:
    found, *rest = starts(data, position, limit)
    expected, *expected_rest = walk(data, position, limit)
    assert found.tolist() == expected
    assert rest == expected_rest
    return len(expected)


@pytest.mark.parametrize("largest", [1, 300, 1_500, 30_000])
def test_the_same_as_one_after_the_other(largest: int) -> None:
    data = log(random.Random(largest), largest=largest)
    count = check(data)
    assert count > 10
    second = walk(data)[0][1]
    check(data, second)
    check(data, 0, len(data) // 2)
    check(data[:-5])
    check(data + bytes(40_000))


def test_small_records_are_found_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    data = log(random.Random(1), largest=300)
    begun: list[int] = []

    def watched(buffer: bytes, position: int = 0, limit: int | None = None) -> tuple[list[int], int, Stop, int]:
        begun.append(position)
        return walk(buffer, position, limit)

    monkeypatch.setattr(scan, "walk", watched)
    found = starts(data)[0]
    assert begun[0] > len(data) * 9 // 10
    assert np.array_equal(found, walk(data)[0])


@pytest.mark.parametrize(("version", "magic"), [(1, MAGIC_V1), (2, MAGIC_V2)])
def test_bodies_that_look_like_records(version: int, magic: int) -> None:
    inner = encode(Record(topic="T", body=b"inner", version=version))
    check(log(random.Random(2), largest=200, body=inner))
    check(log(random.Random(3), largest=200, body=magic.to_bytes(4, "big", signed=True) * 9))


def test_damage_anywhere() -> None:
    chance = random.Random(4)
    good = log(chance, largest=400)
    positions = walk(good)[0]
    shorter = 0
    for _ in range(200):
        data = bytearray(good)
        at = chance.choice(positions) + chance.randrange(8)  # size and magic are all that is looked at
        data[at] = chance.randrange(256)
        shorter += check(bytes(data)) < len(positions)
    assert shorter > 50


def test_nothing_and_little() -> None:
    for data in (b"", bytes(7), bytes(BYTES), b"\xff" * BYTES):
        assert check(data) == 0
