"""The attacker: hand-made frames and arbitrary bytes."""

from __future__ import annotations

import asyncio
import json
import struct
from typing import Any

from firearrow.wire.codes import RequestCode
from firearrow.wire.errors import ProtocolError
from firearrow.wire.frame import Command, FrameDecoder
from tests.wire.headers.registry import REQUEST_HEADERS

TIMEOUT_S = 60.0


def frame(header: bytes, body: bytes = b"", *, length: int | None = None, header_word: int | None = None) -> bytes:
    """Return a frame with correct lengths, or with the given wrong ones."""
    first = 4 + len(header) + len(body) if length is None else length
    second = len(header) if header_word is None else header_word
    return struct.pack(">II", first & 0xFFFFFFFF, second & 0xFFFFFFFF) + header + body


def request(code: int, ext: dict[str, Any] | None = None, body: bytes = b"", *, opaque: int = 1, flag: int = 0) -> bytes:
    """Return a frame with a JSON header; the values of `ext` may have any type."""
    header = {"code": code, "language": "OTHER", "version": 479, "opaque": opaque, "flag": flag, "extFields": ext or {}}
    return frame(json.dumps(header).encode(), body)


class Attacker:
    """A connection that sends arbitrary bytes. `ask` returns the response, None if the server closed the connection."""

    def __init__(self, address: str) -> None:
        self.host, port = address.rsplit(":", 1)
        self.port = int(port)
        self._opaque = 0
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._decoder = FrameDecoder()

    async def __aenter__(self) -> Attacker:
        await self._open()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._close()

    async def ask(self, code: int, ext: dict[str, Any] | None = None, body: bytes = b"") -> Command | None:
        """Send one request, on a new connection if the last was closed."""
        self._opaque += 1
        return await self.ask_raw(request(code, ext, body, opaque=self._opaque), self._opaque)

    async def ask_raw(self, data: bytes, opaque: int) -> Command | None:
        """Send bytes and return the response. Fails if neither a response nor the end of the connection arrives."""
        if self._writer is None:
            await self._open()
        assert self._writer is not None
        self._writer.write(data)
        try:
            return await asyncio.wait_for(self._read_response(opaque), TIMEOUT_S)
        except TimeoutError:
            raise AssertionError(
                f"neither a response nor the end of the connection within {TIMEOUT_S:.0f} s to {data[:600]!r}"
            ) from None

    async def pour(self, data: bytes) -> bytes:
        """Send the bytes and an end of file. Return everything the server sends until it closes the connection."""
        assert self._reader is not None
        assert self._writer is not None
        try:
            self._writer.write(data)
            await asyncio.wait_for(self._writer.drain(), TIMEOUT_S)
            if self._writer.can_write_eof():
                self._writer.write_eof()
            return await asyncio.wait_for(self._reader.read(), TIMEOUT_S)
        except TimeoutError:
            raise
        except OSError:
            return b""  # the server has already closed the connection

    async def is_closed_after(self, data: bytes, timeout_s: float = TIMEOUT_S) -> bool:
        """Return whether the server closes the connection while the attacker still reads."""
        assert self._reader is not None
        assert self._writer is not None
        try:
            self._writer.write(data)
            await asyncio.wait_for(self._writer.drain(), timeout_s)
            await asyncio.wait_for(self._reader.read(), timeout_s)
        except ConnectionError:
            return True
        except TimeoutError:
            return False
        return True

    async def _open(self) -> None:
        self._decoder = FrameDecoder()
        self._reader, self._writer = await asyncio.open_connection(self.host, self.port)

    def _close(self) -> None:
        if self._writer is not None:
            self._writer.close()
        self._reader = self._writer = None

    async def _read_response(self, opaque: int) -> Command | None:
        assert self._reader is not None
        while True:
            try:
                data = await self._reader.read(65536)
            except ConnectionError:
                data = b""
            if not data:
                self._close()
                return None
            try:
                commands = self._decoder.feed(data)
            except ProtocolError as error:
                raise AssertionError(f"the server sent broken bytes: {error}") from error
            for command in commands:
                if command.is_response and command.opaque == opaque:
                    return command


def valid_ext(code: int, names: dict[str, str]) -> dict[str, Any]:
    """Return a valid header for a request code, with names that exist."""
    header = REQUEST_HEADERS.get(code)
    if header is None:
        return {}
    sample: dict[str, str] = {}
    for spec in header.FIELDS:
        if spec.key in names:
            sample[spec.key] = names[spec.key]
        elif spec.kind == "bool":
            sample[spec.key] = "false"
        elif spec.kind in ("int", "Long"):
            sample[spec.key] = NUMBERS.get(spec.key, "1")
        else:
            sample[spec.key] = TEXTS.get(spec.key, "x")
    return sample


NUMBERS = {
    "queueId": "0",
    "queueOffset": "0",
    "sysFlag": "0",
    "flag": "0",
    "commitOffset": "0",
    "suspendTimeoutMillis": "0",
    "perm": "6",
    "readQueueNums": "4",
    "writeQueueNums": "4",
    "brokerId": "0",
    "bodyCrc32": "0",
    "offset": "1",  # no record starts there
    "timestamp": "0",
    "reconsumeTimes": "0",
    "endTimestamp": str(2**63 - 1),
    "topicSysFlag": "0",
    "commitOrRollback": "8",
}
TEXTS = {
    "defaultTopic": "TBW102",
    "properties": "",
    "subscription": "*",
    "expressionType": "TAG",
    "topicFilterType": "SINGLE_TAG",
    "attributes": "",
    "boundaryType": "LOWER",
    "msgId": "7F0000010000000000000000000000FF",
    "dataVersion": "",
    "topicList": "",
    "filterGroups": "",
    "statsName": "TOPIC_PUT_NUMS",
    "indexType": "K",
}
ALL_CODES = sorted({int(code) for code in RequestCode})
