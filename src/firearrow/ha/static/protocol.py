"""Byte protocol between a master and its slaves, on the replication port.

    slave -> master      int64   end of the slave's log; the first report is the start position, later ones are acknowledgements
    master -> slave      int64   log offset of the data
                         int32   length of the data; 0 is a heartbeat
                         bytes   of the log, all from one segment

All integers are big-endian. There is no greeting, version or other length: implausible values end the connection. Decoders return
the same result however the bytes are split.
"""

from __future__ import annotations

from struct import Struct

REPORT = Struct(">q")
HEAD = Struct(">qi")
PURPOSE = "ha"  # of the port, in the handshake that may precede the first report (peers/handshake.py)
MASTER_NAME = "0"  # the names of brokers in the handshake are their broker ids
MAX_DATA = 16 * 1024 * 1024  # of one frame; a master sends at most haTransferBatchSize


class HaError(Exception):
    """The peer cannot be followed or served; the text says why and what to do."""


class ReportDecoder:
    """Decoder of the slave's reports."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[int]:
        data = self._rest + data
        whole = len(data) - len(data) % REPORT.size
        self._rest = data[whole:]
        return [offset for (offset,) in REPORT.iter_unpack(data[:whole])]


class ReplicationFrameDecoder:
    """Decoder of the master's frames."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._bytes = 0
        self._needed = HEAD.size

    def feed(self, data: bytes) -> list[tuple[int, bytes]]:
        """Return (log offset, bytes) of the complete frames. Adjacent frames are joined; heartbeats are empty.

        Raises HaError for an invalid header.
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
                    f"invalid frame: log offset {offset}, {size} bytes. Check that haMasterAddress is the replication port of a "
                    "master"
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
