"""The bytes between a master and its slaves, on the replication port.

    slave -> master      int64   how far the slave's log goes. The first one says where to begin, later ones are confirmations
    master -> slave      int64   log offset of the bytes
                         int32   how many; 0 is a sign of life
                         bytes   of the log, all of one segment

All big-endian. There is no greeting, no version and no length but these: what is not plausible ends the connection. Decoders
give the same whether bytes come in one piece or one at a time.
"""

from __future__ import annotations

from struct import Struct

REPORT = Struct(">q")
HEAD = Struct(">qi")
MAX_DATA = 16 * 1024 * 1024  # of one frame; a master sends haTransferBatchSize at most


class HaError(Exception):
    """The other side cannot be followed or served; the text says why and what to do."""


class ReportDecoder:
    """The master's side."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[int]:
        data = self._rest + data
        whole = len(data) - len(data) % REPORT.size
        self._rest = data[whole:]
        return [offset for (offset,) in REPORT.iter_unpack(data[:whole])]


class FrameDecoder:
    """The slave's side."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._bytes = 0
        self._needed = HEAD.size

    def feed(self, data: bytes) -> list[tuple[int, bytes]]:
        """(log offset, bytes) of everything that has arrived; frames that follow each other in the log are joined.

        Signs of life come as empty bytes. HaError for a head that cannot be one.
        """
        self._pieces.append(data)
        self._bytes += len(data)
        if self._bytes < self._needed:
            return []
        buffer = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
        found: list[tuple[int, list[memoryview]]] = []
        view = memoryview(buffer)
        at, expected = 0, -1
        self._needed = HEAD.size
        while at + HEAD.size <= len(buffer):
            offset, size = HEAD.unpack_from(buffer, at)
            if offset < 0 or not 0 <= size <= MAX_DATA:
                raise HaError(
                    f"what came is no frame of a master: log offset {offset}, {size} bytes; is haMasterAddress the replication "
                    "port of a master?"
                )
            end = at + HEAD.size + size
            if end > len(buffer):
                self._needed = end - at
                break
            body = view[at + HEAD.size : end]
            if found and offset == expected:
                found[-1][1].append(body)
            else:
                found.append((offset, [body]))
            expected = offset + size
            at = end
        self._pieces = [buffer[at:]] if at < len(buffer) else []
        self._bytes = len(buffer) - at
        return [(offset, b"".join(bodies)) for offset, bodies in found]


def encode_report(offset: int) -> bytes:
    return REPORT.pack(offset)


def encode_frame(offset: int, data: bytes | memoryview) -> bytes:
    return HEAD.pack(offset, len(data)) + data
