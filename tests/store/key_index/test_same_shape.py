"""Hashes of blocks of the same shape are those that the general way finds, or none at all."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from firearrow.store.key_index.hashing import hash_spans
from firearrow.store.key_index.property_spans import find_spans
from firearrow.store.key_index.same_shape import UniformRunHashes, hash_alike
from firearrow.wire.java_hash import hash_code

MANY = 24  # of a length: a table is made


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


def check(blocks: list[bytes]) -> tuple[list[UniformRunHashes], list[int]]:
    """Every block is in one table or left over, and what a table says of it is what the general way finds."""
    tables, rest = hash_alike(blocks)
    expected = general(blocks)
    for table in tables:
        assert table.hashes.tolist() == [expected[number] for number in table.numbers.tolist()]
    assert sorted([number for table in tables for number in table.numbers.tolist()] + rest) == list(range(len(blocks)))
    assert rest == sorted(rest)
    return tables, rest


def test_the_usual_run() -> None:
    blocks = [block(number) for number in range(1000, 1100)]
    [table], rest = check(blocks)
    assert not rest
    assert table.tagged == [False, False, True]
    assert table.hashes[7, 1] == hash_code("order-1007") & 0xFFFFFFFF
    assert table.factors.tolist() == [[pow(31, 28, 1 << 32), pow(31, 10, 1 << 32), pow(31, 4, 1 << 32)]]


def test_numbers_of_some_other_digits() -> None:
    tables, rest = check([block(number) for number in range(70, 1050)])
    assert not rest
    assert [table.factors[0, 1] for table in tables] == [pow(31, len("order-") + digits, 1 << 32) for digits in (2, 3, 4)]


def test_what_is_rare_does_not_hold_up_the_others() -> None:
    """Halves, what they became, and a message that says which of them are done."""
    run = [text for number in range(1000, 1100) for text in (block(number) + b"TRAN_MSG\x01true\x02", block(number))]
    run.insert(77, b"TAGS\x01d\x02WAIT\x01true\x02")
    tables, rest = check(run)
    assert [len(table.numbers) for table in tables] == [100, 100]
    assert rest == [77]


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
    assert len(odd) == len(blocks[0])
    assert check([*blocks, odd]) == ([], list(range(51)))
    check([odd])


values = st.text("aK1 \x01\u00e9", max_size=4)
names = st.sampled_from(["UNIQ_KEY", "KEYS", "TAGS", "UNIQ_KEYS", "UNIQ_KE", "KEY", "TAGSX", "MYTAGS", "W", ""])


@given(st.lists(st.lists(st.tuples(names, values), max_size=4), min_size=1, max_size=5), st.booleans())
@settings(max_examples=400, deadline=None)
def test_whatever_is_found_is_what_the_general_way_finds(blocks: list[list[tuple[str, str]]], ended: bool) -> None:
    texts = ["\x02".join(f"{name}\x01{value}" for name, value in block) + ("\x02" if ended else "") for block in blocks]
    check([text.encode() for text in texts] * MANY)


@given(st.lists(st.text("UNIQ_KEYSTAG\x01\x02 1", max_size=24), min_size=1, max_size=4))
@settings(max_examples=400, deadline=None)
def test_blocks_that_are_hardly_properties(texts: list[str]) -> None:
    check([text.encode() for text in texts] * MANY)
