"""Hashes of blocks of the same shape are those that the general way finds, or none at all."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from firearrow.store.javahash_np import hash_spans
from firearrow.store.property_spans import find_spans
from firearrow.store.same_shape import hash_alike
from firearrow.wire.javahash import hash_code


def general(blocks: list[bytes]) -> list[list[int]]:
    """By message the hashes of UNIQ_KEY, KEYS, TAGS, as property_spans finds them."""
    spans = find_spans(blocks)
    found: list[list[int]] = [[] for _ in blocks]
    for kind in (spans.unique_keys, spans.keys, spans.tags):
        hashes, _ = hash_spans(spans.data, kind.start, kind.length)
        for message, value in zip(kind.message.tolist(), hashes.tolist(), strict=True):
            found[message].append(value)
    return found


def block(number: int, *, tags: str = "TagA") -> bytes:
    return b"UNIQ_KEY\x017F00000160533309%012d\x02KEYS\x01order-%d\x02WAIT\x01true\x02TAGS\x01%b\x02" % (
        number, number, tags.encode(),
    )  # fmt: skip


def test_the_usual_run() -> None:
    blocks = [block(number) for number in range(1000, 1100)]
    found = hash_alike(blocks)
    assert found is not None
    assert found.tagged == [False, False, True]
    assert found.hashes.tolist() == general(blocks)
    assert found.hashes[7, 1] == hash_code("order-1007") & 0xFFFFFFFF
    assert found.factors.tolist() == [[pow(31, 28, 1 << 32), pow(31, 10, 1 << 32), pow(31, 4, 1 << 32)]]


def test_numbers_of_some_other_digits() -> None:
    blocks = [block(number) for number in range(90, 1010)]
    found = hash_alike(blocks)
    assert found is not None
    assert found.hashes.tolist() == general(blocks)
    assert found.factors[:, 1].tolist() == [pow(31, len(f"order-{number}"), 1 << 32) for number in range(90, 1010)]


@pytest.mark.parametrize(
    "odd",
    [
        block(1234).replace(b"WAIT", b"TAGS"),  # a name twice
        block(1234).replace(b"order-", b"or er-"),  # two keys
        block(1234).replace(b"order-", b"or\x02er-"),  # a value that ends earlier
        block(1234).replace(b"KEYS\x01", b"KEY\x01s"),
        block(1234).replace(b"UNIQ_KEY", b"UNIQ_KEX"),
        block(1234).replace(b"KEYS\x01o", b"KEYSo\x01"),
        block(1234).replace(b"TagA", "T\u00e4g".encode()),
    ],
)
def test_one_block_among_many_that_is_unlike_the_others(odd: bytes) -> None:
    blocks = [block(number) for number in range(1000, 1050)]
    assert hash_alike([*blocks, odd]) is None
    alone = hash_alike([odd])
    assert alone is None or alone.hashes.tolist() == general([odd])


values = st.text("aK1 \x01\u00e9", max_size=4)
names = st.sampled_from(["UNIQ_KEY", "KEYS", "TAGS", "UNIQ_KEYS", "UNIQ_KE", "KEY", "TAGSX", "MYTAGS", "W", ""])


@given(st.lists(st.lists(st.tuples(names, values), max_size=4), min_size=1, max_size=5), st.booleans())
@settings(max_examples=400, deadline=None)
def test_whatever_is_found_is_what_the_general_way_finds(blocks: list[list[tuple[str, str]]], ended: bool) -> None:
    texts = ["\x02".join(f"{name}\x01{value}" for name, value in block) + ("\x02" if ended else "") for block in blocks]
    raw = [text.encode() for text in texts]
    found = hash_alike(raw)
    assert found is None or found.hashes.tolist() == general(raw)


@given(st.lists(st.text("UNIQ_KEYSTAG\x01\x02 1", max_size=24), min_size=1, max_size=4))
@settings(max_examples=400, deadline=None)
def test_blocks_that_are_hardly_properties(texts: list[str]) -> None:
    raw = [text.encode() for text in texts]
    found = hash_alike(raw)
    assert found is None or found.hashes.tolist() == general(raw)
