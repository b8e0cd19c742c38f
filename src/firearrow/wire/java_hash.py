"""Java's `String.hashCode`, which consume queues and index files store for tags and keys.

h = 31 * h + unit over the UTF-16 code units, in 32 bits with a sign. A consume queue entry stores it for the tag of a message
(0 for none), the key index for `topic#key`.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from firearrow.wire.properties import find

_LONGEST_CACHED: Final = 128  # keeps the cache below two megabytes whatever is sent


def hash_code(text: str) -> int:
    h = 0
    if text.isascii():
        for unit in text.encode():
            h = (31 * h + unit) & 0xFFFFFFFF
    else:
        units = text.encode("utf-16-be", "surrogatepass")
        for high, low in zip(units[::2], units[1::2], strict=True):
            h = (31 * h + (high << 8 | low)) & 0xFFFFFFFF
    return h - (1 << 32) if h & 0x80000000 else h


def tags_code_of(raw: bytes) -> int:
    """Return the tags code of a message from its properties; 0 without tags. On the path of every message."""
    _, found, rest = raw.rpartition(b"\x02TAGS\x01")
    code = _codes.get(rest.partition(b"\x02")[0]) if found else None
    return _find_tags_code(raw) if code is None else code


def _find_tags_code(raw: bytes) -> int:
    """Return the code of tags that are not cached or come first in the properties."""
    tags = find(raw, b"TAGS")
    if tags is None:
        return 0
    code = tags_code(tags.decode("utf-8", "replace"))
    if len(tags) <= _LONGEST_CACHED and len(_codes) < _CACHED:
        _codes[tags] = code
    return code


def tags_code(tags: str) -> int:
    """Return the code of a tag. Tags are few and repeat, so codes are cached."""
    return _cached(tags) if len(tags) <= _LONGEST_CACHED else hash_code(tags)


_CACHED: Final = 4096
_cached = lru_cache(maxsize=_CACHED)(hash_code)
_codes: dict[bytes, int] = {}
