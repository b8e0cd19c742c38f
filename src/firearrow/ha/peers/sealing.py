"""Records with a message authentication code, for connections without TLS. No sockets.

    uint32   length of the data
    bytes    the data
    16       the first bytes of HMAC-SHA256(key of the direction, uint64 number of the record || uint32 length || data)

Records are numbered from 0 in each direction, so a record that is changed, repeated, dropped or moved ends the connection. The
data is not encrypted: use TLS for that.

Cost of one record and direction with CPython 3.11 on a CPU with SHA instructions: 2.2 us, and 0.6 us for each KiB.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterable
from struct import Struct

TAG_BYTES = 16
MAX_RECORD = 17 << 20  # a Raft message of the maximum size, with room
_LENGTH = Struct(">I")
_NUMBERED_LENGTH = Struct(">QI")


class SealError(Exception):
    """A record was changed on the way, or does not come from the peer."""


class _Mac:
    """The codes of one direction."""

    def __init__(self, key: bytes) -> None:
        self._keyed = hmac.new(key, digestmod="sha256")
        self._number = 0

    def next_tag(self, size: int, parts: Iterable[bytes | memoryview]) -> bytes:
        mac = self._keyed.copy()  # a new object from the key takes 50 % longer
        mac.update(_NUMBERED_LENGTH.pack(self._number, size))
        for part in parts:
            mac.update(part)
        self._number += 1
        return mac.digest()[:TAG_BYTES]


class Sealer:
    """The sending direction."""

    def __init__(self, key: bytes) -> None:
        self._mac = _Mac(key)

    def seal(self, parts: list[bytes]) -> list[bytes]:
        """Return a record with `parts` as its data, as pieces to write."""
        size = sum(map(len, parts))
        assert size <= MAX_RECORD, f"a record of {size} bytes"
        return [_LENGTH.pack(size), *parts, self._mac.next_tag(size, parts)]


class Opener:
    """The receiving direction."""

    def __init__(self, key: bytes) -> None:
        self._mac = _Mac(key)
        self._pieces: list[bytes] = []
        self._bytes = 0
        self._needed = _LENGTH.size + TAG_BYTES

    def feed(self, data: bytes) -> bytes:
        """Return the data of the complete records, joined. Raises SealError."""
        self._pieces.append(data)
        self._bytes += len(data)
        if self._bytes < self._needed:
            return b""
        buffer = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
        view = memoryview(buffer)
        found: list[memoryview] = []
        at = 0
        self._needed = _LENGTH.size + TAG_BYTES
        while at + _LENGTH.size <= len(buffer):
            (size,) = _LENGTH.unpack_from(buffer, at)
            if size > MAX_RECORD:
                raise SealError(f"a record of {size} bytes is announced, the maximum is {MAX_RECORD}")
            start = at + _LENGTH.size
            end = start + size
            if end + TAG_BYTES > len(buffer):
                self._needed = end + TAG_BYTES - at
                break
            body = view[start:end]
            if not hmac.compare_digest(self._mac.next_tag(size, (body,)), view[end : end + TAG_BYTES]):
                raise SealError("a record has a wrong authentication code: it was changed on the way, repeated or forged")
            found.append(body)
            at = end + TAG_BYTES
        self._pieces = [buffer[at:]] if at < len(buffer) else []
        self._bytes = len(buffer) - at
        return b"".join(found)
