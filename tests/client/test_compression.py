from __future__ import annotations

import zlib

import pytest

from firearrow.client.compression import MAX_INFLATED, USUAL_RATIO, DecompressionBudget, compressor, decompress
from firearrow.client.errors import DecompressionError

KINDS = ["zlib", "lz4", "zstd"]


def compressed(kind: str, body: bytes) -> tuple[bytes, int]:
    if kind != "zlib":
        pytest.importorskip({"lz4": "lz4.frame", "zstd": "zstandard"}[kind])
    compress, flag = compressor(kind)
    return compress(body), flag


@pytest.mark.parametrize("kind", KINDS)
def test_compressed_bodies_round_trip(kind: str) -> None:
    for body in (b"a", b"hello" * 10_000, bytes(range(256))):
        data, flag = compressed(kind, body)
        assert decompress(data, flag) == body
        assert decompress(data, flag, limit=len(body)) == body


@pytest.mark.parametrize("kind", KINDS)
def test_decompression_bomb_is_rejected(kind: str) -> None:
    data, flag = compressed(kind, bytes(50_000_000))
    assert len(data) < 1_000_000
    with pytest.raises(DecompressionError, match=r"becomes larger than 1000 bytes"):
        decompress(data, flag, limit=1000)
    data, flag = compressed(kind, bytes(1001))
    with pytest.raises(DecompressionError, match="larger than 1000"):
        decompress(data, flag, limit=1000)


def test_bodies_of_one_response_are_limited_together() -> None:
    data, flag = compressed("zlib", bytes(MAX_INFLATED // 4))
    budget = DecompressionBudget(len(data))
    for _ in range(4):
        assert len(budget.decompress(data, flag)) == MAX_INFLATED // 4
    text = f"the compressed bodies of one response become larger than {MAX_INFLATED + USUAL_RATIO * len(data)} bytes together"
    with pytest.raises(DecompressionError, match=text):
        budget.decompress(data, flag)
    assert budget.decompress(*compressed("zlib", b"small")) == b"small"


def test_single_body_keeps_its_own_limit_within_a_budget() -> None:
    data, flag = compressed("zlib", bytes(MAX_INFLATED + 1))
    with pytest.raises(DecompressionError, match=f"a compressed body of {len(data)} bytes becomes larger than {MAX_INFLATED}"):
        DecompressionBudget(10 * len(data)).decompress(data, flag)


@pytest.mark.parametrize("kind", KINDS)
def test_corrupt_body_is_a_decompression_error(kind: str) -> None:
    data, flag = compressed(kind, b"hello" * 1000)
    for broken in (b"", b"\0" * 20, data[: len(data) // 2], b"x" + data):
        with pytest.raises(DecompressionError):
            decompress(broken, flag)


def test_old_producers_do_not_say_how() -> None:
    assert decompress(zlib.compress(b"old"), 0x1) == b"old"
    with pytest.raises(DecompressionError, match="unknown compression 0x400"):
        decompress(b"x", 0x401)


def test_an_unknown_kind_is_named() -> None:
    with pytest.raises(ValueError, match="'gzip', expected zlib, lz4 or zstd"):
        compressor("gzip")


def test_lz4_blocks_do_not_refer_to_each_other() -> None:
    """Java's reader takes no others: bit 5 of the frame's flags says so."""
    data, _ = compressed("lz4", b"x" * 100_000)
    assert (data[:4], data[4] & 0x20) == (b"\x04\x22\x4d\x18", 0x20)
