"""Compression of bodies: zlib, which every client supports, and lz4 and zstd if their packages are installed.

The system flag marks a compressed body (0x1) and the algorithm (0x700): 0x100 lz4 frame, 0x200 zstd, 0x300 or 0 zlib. Bodies are
decompressed up to `MAX_INFLATED` bytes, and those of one response together up to the limit of a `DecompressionBudget`. Both guard
against decompression bombs.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from firearrow.client.errors import DecompressionError
from firearrow.wire.record import COMPRESSED, COMPRESSION_LZ4, COMPRESSION_TYPE, COMPRESSION_ZLIB, COMPRESSION_ZSTD

MAX_INFLATED: Final = 64 * 1024 * 1024
USUAL_RATIO: Final = 32  # compressed text becomes 3 to 20 times as large, a decompression bomb 1000 times
LEVEL: Final = 5

Compressor = Callable[[bytes], bytes]


class BodyTooLargeError(DecompressionError):
    """A body that becomes larger than allowed."""


_EXTRA: Final = "pip install 'firearrow[compression]'"


def compressor(name: str) -> tuple[Compressor, int]:
    """Return the compression function and its system flags. ValueError for an unknown name or a missing package."""
    if name == "zlib":
        return _deflate, COMPRESSED | COMPRESSION_ZLIB
    if name == "lz4":
        # Java's reader rejects linked blocks.
        return partial(_package("lz4.frame", name).compress, block_linked=False), COMPRESSED | COMPRESSION_LZ4
    if name == "zstd":
        zstandard = _package("zstandard", name)
        return zstandard.ZstdCompressor(level=3).compress, COMPRESSED | COMPRESSION_ZSTD
    raise ValueError(f"compression is {name!r}, expected zlib, lz4 or zstd")


def decompress(body: bytes, sys_flag: int, limit: int = MAX_INFLATED) -> bytes:
    """Decompress the body of a message whose flag marks it as compressed."""
    kind = sys_flag & COMPRESSION_TYPE
    if kind in (0, COMPRESSION_ZLIB):
        return _inflate("zlib", zlib.decompressobj(), zlib.error, body, limit)
    if kind == COMPRESSION_LZ4:
        return _inflate("lz4", _package_to_read("lz4.frame", "lz4").LZ4FrameDecompressor(), RuntimeError, body, limit)
    if kind == COMPRESSION_ZSTD:
        return _inflate_zstd(body, limit)
    raise DecompressionError(
        f"the body has the unknown compression {kind:#x} (system flag {sys_flag:#x}); a newer client may support it"
    )


class DecompressionBudget:
    """Limit of the decompressed bodies of one response: `MAX_INFLATED` and `USUAL_RATIO` times the compressed bytes.

    The messages of a response keep their decompressed bodies, so the limit of a single body would not bound their memory.
    """

    __slots__ = ("_left", "_limit")

    def __init__(self, compressed_bytes: int) -> None:
        self._limit = self._left = MAX_INFLATED + USUAL_RATIO * compressed_bytes

    def decompress(self, body: bytes, sys_flag: int) -> bytes:
        """Decompress a body of the response. DecompressionError if it cannot be, or if all of them together are too large."""
        left = self._left
        if left >= MAX_INFLATED:
            plain = decompress(body, sys_flag)
        else:
            try:
                plain = decompress(body, sys_flag, left)
            except BodyTooLargeError:
                raise BodyTooLargeError(
                    f"the compressed bodies of one response become larger than {self._limit} bytes together; "
                    "pull fewer messages at once, or skip the message if it is malicious"
                ) from None
        self._left = left - len(plain)
        return plain


def _deflate(body: bytes) -> bytes:
    return zlib.compress(body, LEVEL)


def _inflate(name: str, stream: Any, invalid: type[Exception], body: bytes, limit: int) -> bytes:
    try:
        plain: bytes = stream.decompress(body, limit + 1)
    except invalid as error:
        raise DecompressionError(f"a body of {len(body)} bytes is not {name}: {error}") from None
    if len(plain) > limit:
        _too_large(body, limit)
    if not stream.eof:
        raise DecompressionError(f"the {name} body of {len(body)} bytes ends too early")
    return plain


def _inflate_zstd(body: bytes, limit: int) -> bytes:
    zstandard = _package_to_read("zstandard", "zstd")
    try:
        with zstandard.ZstdDecompressor().stream_reader(body) as reader:
            plain: bytes = reader.read(limit + 1)
        if len(plain) > limit:
            _too_large(body, limit)
        # The reader does not detect truncation; now that the size is known to be acceptable, another decompressor does.
        whole = zstandard.ZstdDecompressor().decompressobj()
        whole.decompress(body)
    except zstandard.ZstdError as error:
        raise DecompressionError(f"a body of {len(body)} bytes is not zstd: {error}") from None
    if not whole.eof:
        raise DecompressionError(f"a zstd body of {len(body)} bytes ends too early")
    return plain


def _too_large(body: bytes, limit: int) -> None:
    raise BodyTooLargeError(f"a compressed body of {len(body)} bytes becomes larger than {limit} bytes")


def _package(module: str, name: str) -> Any:
    import importlib

    try:
        return importlib.import_module(module)
    except ImportError:
        raise ValueError(f"compression {name} needs a package: {_EXTRA}") from None


def _package_to_read(module: str, name: str) -> Any:
    try:
        return _package(module, name)
    except ValueError as error:
        raise DecompressionError(f"a received body is compressed with {name}: {error}") from None
