"""The vectorised hash against the plain one, which the wire room tests against Java's own values."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from firearrow.store.key_index.hashing import hash_key, hash_spans, powers_of_31
from firearrow.wire.java_hash import hash_code

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
def test_many_keys_at_once_hash_as_one_by_one(texts: list[str], front: bytes, between: bytes) -> None:
    hashes, factors = hash_spans(*spans(texts, front, between))
    assert hashes.tolist() == [hash_code(text) & MASK for text in texts]
    assert factors.tolist() == [pow(31, utf16_length(text), 1 << 32) for text in texts]


@given(st.text(), st.text())
def test_one_key(prefix: str, text: str) -> None:
    assert hash_key(hash_code(prefix), text.encode()) == hash_code(prefix + text) & MASK


@given(st.text("ab~\x7f\x01", min_size=480, max_size=540))
def test_long_keys(text: str) -> None:
    assert hash_key(0, text.encode()) == hash_code(text) & MASK
    hashes, _ = hash_spans(*spans([text, "x", text]))
    assert hashes.tolist() == [hash_code(text) & MASK, ord("x"), hash_code(text) & MASK]


@given(st.text(), st.text())
def test_a_prefix_is_added_by_its_hash_and_the_factor(prefix: str, key: str) -> None:
    (key_hash,), (factor,) = hash_spans(*spans([key]))
    assert (hash_code(prefix) * int(factor) + int(key_hash)) & MASK == hash_code(prefix + key) & MASK


def test_longest_possible_property_value() -> None:
    text = "~" * 32_767
    hashes, factors = hash_spans(*spans([text]))
    assert (int(hashes[0]), int(factors[0])) == (hash_code(text) & MASK, pow(31, 32_767, 1 << 32))
    assert hash_key(1, text.encode()) == (int(hashes[0]) + int(factors[0])) & MASK


@given(st.lists(st.binary(max_size=40)))
def test_broken_utf_8_is_read_as_replacement_characters(raw: list[bytes]) -> None:
    starts = np.cumsum([0, *map(len, raw)])[:-1].astype(np.int64)
    hashes, _ = hash_spans(b"".join(raw), starts, np.array([len(key) for key in raw], np.int64))
    assert hashes.tolist() == [hash_code(key.decode("utf-8", "replace")) & MASK for key in raw]


def test_powers_grow_on_demand() -> None:
    powers = powers_of_31(100_000)
    assert len(powers) >= 100_000
    assert int(powers[99_999]) == pow(31, 99_999, 1 << 32)
