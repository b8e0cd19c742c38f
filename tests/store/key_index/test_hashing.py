"""Vectorised key hashing compared with wire/java_hash.py, and property spans compared with plain parsing."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from firearrow.store.key_index.hashing import (
    Spans,
    UniformRunHashes,
    find_spans,
    hash_spans,
    hash_uniform_runs,
    powers_of_31,
)
from firearrow.wire import properties as wire_properties
from firearrow.wire.java_hash import hash_code
from tests.store.index_model import parse_properties

MASK = 0xFFFFFFFF
keys = st.lists(st.one_of(st.text(), st.text(st.characters(max_codepoint=127)), st.text("0123456789ABCDEF", min_size=20)))


def spans(texts: list[str], front: bytes = b"", between: bytes = b"") -> tuple[bytes, np.ndarray, np.ndarray]:
    data, starts, lengths = front, [], []
    for text in texts:
        starts.append(len(data))
        lengths.append(len(text.encode()))
        data += text.encode() + between
    return data, np.array(starts, np.int64), np.array(lengths, np.int64)


def utf16_length(text: str) -> int:
    return len(text.encode("utf-16-be")) // 2


@given(keys, st.binary(max_size=20), st.binary(max_size=20))
def test_hash_spans_equals_the_hash_of_each_key(texts: list[str], front: bytes, between: bytes) -> None:
    hashes, factors = hash_spans(*spans(texts, front, between))
    assert hashes.tolist() == [hash_code(text) & MASK for text in texts]
    assert factors.tolist() == [pow(31, utf16_length(text), 1 << 32) for text in texts]


@given(st.text("ab~\x7f\x01", min_size=480, max_size=540))
def test_hash_spans_of_long_keys(text: str) -> None:
    hashes, _ = hash_spans(*spans([text, "x", text]))
    assert hashes.tolist() == [hash_code(text) & MASK, ord("x"), hash_code(text) & MASK]


@given(st.text(), st.text())
def test_prefix_is_combined_through_its_hash_and_the_factor(prefix: str, key: str) -> None:
    (key_hash,), (factor,) = hash_spans(*spans([key]))
    assert (hash_code(prefix) * int(factor) + int(key_hash)) & MASK == hash_code(prefix + key) & MASK


def test_hash_of_the_longest_property_value() -> None:
    text = "~" * 32_767
    hashes, factors = hash_spans(*spans([text]))
    assert (int(hashes[0]), int(factors[0])) == (hash_code(text) & MASK, pow(31, 32_767, 1 << 32))


@given(st.lists(st.binary(max_size=40)))
def test_invalid_utf_8_hashes_as_replacement_characters(raw: list[bytes]) -> None:
    starts = np.cumsum([0, *map(len, raw)])[:-1].astype(np.int64)
    hashes, _ = hash_spans(b"".join(raw), starts, np.array([len(key) for key in raw], np.int64))
    assert hashes.tolist() == [hash_code(key.decode("utf-8", "replace")) & MASK for key in raw]


def test_powers_grow_on_demand() -> None:
    powers = powers_of_31(100_000)
    assert len(powers) >= 100_000
    assert int(powers[99_999]) == pow(31, 99_999, 1 << 32)


texts = st.text(st.characters(exclude_characters="\x01\x02", exclude_categories=["Cs"]), max_size=10)
values = st.one_of(st.sampled_from(["", "a", "TagA", "k1 k2", " k  ", "x\x01y"]), texts)
segments = st.tuples(st.sampled_from(["UNIQ_KEY", "KEYS", "TAGS", "WAIT", "TAGSX", "XTAGS", ""]), values).map("\x01".join)
blocks = st.lists(st.one_of(segments, texts), max_size=5).map(lambda parts: "\x02".join(parts).encode())
any_blocks = st.one_of(blocks, blocks.map(lambda block: block + b"\x02"), st.binary(max_size=30))


def found_values(data: bytes, spans: Spans) -> list[tuple[int, bytes]]:
    return [
        (m, data[s : s + n]) for m, s, n in zip(spans.message.tolist(), spans.start.tolist(), spans.length.tolist(), strict=True)
    ]


@given(st.lists(any_blocks, max_size=12))
def test_find_spans_finds_what_parsing_each_block_finds(given_blocks: list[bytes]) -> None:
    spans = find_spans(given_blocks)
    parsed = list(enumerate(map(parse_properties, given_blocks)))
    assert found_values(spans.data, spans.unique_keys) == [(i, p[b"UNIQ_KEY"]) for i, p in parsed if b"UNIQ_KEY" in p]
    assert found_values(spans.data, spans.tags) == [(i, p[b"TAGS"]) for i, p in parsed if b"TAGS" in p]
    tokens = [(i, token) for i, p in parsed for token in p.get(b"KEYS", b"").split(b" ") if token]
    assert found_values(spans.data, spans.keys) == tokens
    for block, (_, values_of_block) in zip(given_blocks, parsed, strict=True):
        assert wire_properties.find(block, b"TAGS") == values_of_block.get(b"TAGS")


def test_find_spans_of_repeated_empty_and_malformed_properties() -> None:
    given_blocks = [
        b"TAGS\x01a\x02TAGS\x01b\x02",  # the last one counts
        b"TAGS\x01a\x02TAGS\x01\x02",  # unless it is empty
        b"TAGS\x02TAGS",  # no separator
        b"\x01TAGS\x01a\x02",  # no name
        b"TAGS\x01a\x01b",  # 0x01 in a value, and no 0x02 at the end
        b"",
        b"MYTAGS\x01a\x02TAGS2\x01a\x02tags\x01a\x02",
        b"A\x01TAGS\x01a\x02",
    ]
    spans = find_spans(given_blocks)
    assert found_values(spans.data, spans.tags) == [(0, b"b"), (1, b"a"), (4, b"a\x01b")]


MANY = 24  # blocks of one length: enough for a table


def general(blocks: list[bytes]) -> list[list[int]]:
    """Return the hashes of UNIQ_KEY, KEYS and TAGS per message, computed with `find_spans`."""
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


def check_uniform(blocks: list[bytes]) -> tuple[list[UniformRunHashes], list[int]]:
    """Check that every block is in one table or left over, and that the tables agree with `general`."""
    tables, rest = hash_uniform_runs(blocks)
    expected = general(blocks)
    for table in tables:
        assert table.hashes.tolist() == [expected[number] for number in table.numbers.tolist()]
    assert sorted([number for table in tables for number in table.numbers.tolist()] + rest) == list(range(len(blocks)))
    assert rest == sorted(rest)
    return tables, rest


def test_run_of_uniform_blocks_is_one_table() -> None:
    blocks = [block(number) for number in range(1000, 1100)]
    [table], rest = check_uniform(blocks)
    assert not rest
    assert table.tagged == [False, False, True]
    assert table.hashes[7, 1] == hash_code("order-1007") & 0xFFFFFFFF
    assert table.factors.tolist() == [[pow(31, 28, 1 << 32), pow(31, 10, 1 << 32), pow(31, 4, 1 << 32)]]


def test_each_block_length_gets_its_own_table() -> None:
    tables, rest = check_uniform([block(number) for number in range(70, 1050)])
    assert not rest
    assert [table.factors[0, 1] for table in tables] == [pow(31, len("order-") + digits, 1 << 32) for digits in (2, 3, 4)]


def test_rare_blocks_are_left_over() -> None:
    """A run of half messages, committed messages and one op message."""
    run = [text for number in range(1000, 1100) for text in (block(number) + b"TRAN_MSG\x01true\x02", block(number))]
    run.insert(77, b"TAGS\x01d\x02WAIT\x01true\x02")
    tables, rest = check_uniform(run)
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
def test_table_is_refused_when_one_block_differs(odd: bytes) -> None:
    blocks = [block(number) for number in range(1000, 1050)]
    assert len(odd) == len(blocks[0])
    assert check_uniform([*blocks, odd]) == ([], list(range(51)))
    check_uniform([odd])


short_values = st.text("aK1 \x01\u00e9", max_size=4)
names = st.sampled_from(["UNIQ_KEY", "KEYS", "TAGS", "UNIQ_KEYS", "UNIQ_KE", "KEY", "TAGSX", "MYTAGS", "W", ""])


@given(st.lists(st.lists(st.tuples(names, short_values), max_size=4), min_size=1, max_size=5), st.booleans())
@settings(max_examples=400, deadline=None)
def test_uniform_hashes_equal_those_of_find_spans(blocks: list[list[tuple[str, str]]], ended: bool) -> None:
    texts = ["\x02".join(f"{name}\x01{value}" for name, value in block) + ("\x02" if ended else "") for block in blocks]
    check_uniform([text.encode() for text in texts] * MANY)


@given(st.lists(st.text("UNIQ_KEYSTAG\x01\x02 1", max_size=24), min_size=1, max_size=4))
@settings(max_examples=400, deadline=None)
def test_uniform_hashes_of_malformed_blocks(texts: list[str]) -> None:
    check_uniform([text.encode() for text in texts] * MANY)
