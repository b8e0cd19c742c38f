"""Bodies that travel compressed: zlib, which every client reads, lz4 and zstd where their packages are installed.

The system flag says that a body is compressed (0x1) and how (0x700): 0x100 lz4 frame, 0x200 zstd, 0x300 or 0 zlib. A peer that
sends a few bytes which become gigabytes must not get them: nothing is inflated beyond `MAX_INFLATED`.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from firearrow.client.errors import DecompressionError
from firearrow.wire.record import COMPRESSED, COMPRESSION_LZ4, COMPRESSION_TYPE, COMPRESSION_ZLIB, COMPRESSION_ZSTD

MAX_INFLATED: Final = 64 * 1024 * 1024
LEVEL: Final = 5

Compressor = Callable[[bytes], bytes]

_EXTRA: Final = "pip install 'firearrow[compression]'"


def compressor(name: str) -> tuple[Compressor, int]:
    """The function that compresses and the bits that say so. ValueError for an unknown name or a package that is missing."""
    if name == "zlib":
        return _deflate, COMPRESSED | COMPRESSION_ZLIB
    if name == "lz4":
        # Java's reader refuses blocks that refer to the ones before them.
        return partial(_package("lz4.frame", name).compress, block_linked=False), COMPRESSED | COMPRESSION_LZ4
    if name == "zstd":
        zstandard = _package("zstandard", name)
        return zstandard.ZstdCompressor(level=3).compress, COMPRESSED | COMPRESSION_ZSTD
    raise ValueError(f"compression {name!r}, expected zlib, lz4 or zstd")


def inflated(body: bytes, sys_flag: int, limit: int = MAX_INFLATED) -> bytes:
    """The body of a message whose flag says that it is compressed."""
    kind = sys_flag & COMPRESSION_TYPE
    if kind in (0, COMPRESSION_ZLIB):
        return _inflate_zlib(body, limit)
    if kind == COMPRESSION_LZ4:
        return _inflate_lz4(body, limit)
    if kind == COMPRESSION_ZSTD:
        return _inflate_zstd(body, limit)
    raise DecompressionError(
        f"a body compressed in the unknown way {kind:#x} (of system flag {sys_flag:#x}); is there a newer release?"
    )


def _deflate(body: bytes) -> bytes:
    return zlib.compress(body, LEVEL)


def _inflate_zlib(body: bytes, limit: int) -> bytes:
    stream = zlib.decompressobj()
    try:
        plain = stream.decompress(body, limit + 1)
    except zlib.error as error:
        raise DecompressionError(f"a body of {len(body)} bytes is not zlib: {error}") from None
    if len(plain) > limit:
        _too_large(body, limit)
    if not stream.eof:
        raise DecompressionError(f"a zlib body of {len(body)} bytes ends too early")
    return plain


def _inflate_lz4(body: bytes, limit: int) -> bytes:
    stream = _package_to_read("lz4.frame", "lz4").LZ4FrameDecompressor()
    try:
        plain: bytes = stream.decompress(body, limit + 1)
    except RuntimeError as error:
        raise DecompressionError(f"a body of {len(body)} bytes is not lz4: {error}") from None
    if len(plain) > limit:
        _too_large(body, limit)
    if not stream.eof:
        raise DecompressionError(f"an lz4 body of {len(body)} bytes ends too early")
    return plain


def _inflate_zstd(body: bytes, limit: int) -> bytes:
    zstandard = _package_to_read("zstandard", "zstd")
    try:
        with zstandard.ZstdDecompressor().stream_reader(body) as reader:
            plain: bytes = reader.read(limit + 1)
        if len(plain) > limit:
            _too_large(body, limit)
        # The reader takes an early end for the end. Now that the size is known, another one may say whether it was.
        whole = zstandard.ZstdDecompressor().decompressobj()
        whole.decompress(body)
    except zstandard.ZstdError as error:
        raise DecompressionError(f"a body of {len(body)} bytes is not zstd: {error}") from None
    if not whole.eof:
        raise DecompressionError(f"a zstd body of {len(body)} bytes ends too early")
    return plain


def _too_large(body: bytes, limit: int) -> None:
    raise DecompressionError(f"a compressed body of {len(body)} bytes becomes larger than {limit} bytes")


def _package(module: str, name: str) -> Any:
    import importlib

    try:
        return importlib.import_module(module)
    except ImportError:
        raise ValueError(f"compression {name} needs a package that is not installed: {_EXTRA}") from None


def _package_to_read(module: str, name: str) -> Any:
    try:
        return _package(module, name)
    except ValueError as error:
        raise DecompressionError(f"a body came compressed with {name}: {error}") from None
