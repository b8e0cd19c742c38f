"""The stored record, as the commit log holds it, a pull returns it and replication ships it.

This is the only module that knows the layout. Code that cannot afford a function call per record (the append path, numpy scans)
takes its structs and positions from here.

All integers are big-endian. B and S are 8 (IPv4) or 20 (IPv6, when SYSFLAG has 0x10 or 0x20): the address, then the port as four
bytes. T is 1 in version 1 and 2 in version 2, which only long retry topics need.

    offset   size   field
    0        4      TOTALSIZE     74 + B + S + T + body + topic + properties (91 + ... for version 1 with IPv4)
    4        4      MAGICCODE     0xDAA320A7 version 1, 0xDAA320AB version 2
    8        4      BODYCRC       CRC-32 of the body with the top bit cleared
    12       4      QUEUEID
    16       4      FLAG          set by the producer
    20       8      QUEUEOFFSET
    28       8      PHYSICALOFFSET
    36       4      SYSFLAG
    40       8      BORNTIMESTAMP
    48       B      BORNHOST
    48+B     8      STORETIMESTAMP
    56+B     S      STOREHOST
    56+B+S   4      RECONSUMETIMES
    60+B+S   8      PREPAREDTRANSACTIONOFFSET
    68+B+S   4+n    BODYLEN, BODY
             T+t    TOPICLEN (signed), TOPIC
             2+p    PROPLEN (signed), PROPERTIES

Records follow each other without gaps. The rest of a commit log segment after its last record is a blank: its size, the magic
0xCBD43194, and bytes without meaning.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple, Self
from zlib import crc32

from firearrow.wire.errors import ProtocolError

Buffer = bytes | bytearray | memoryview

MAGIC_V1: Final = 0xDAA320A7 - (1 << 32)
MAGIC_V2: Final = 0xDAA320AB - (1 << 32)
MAGIC_BLANK: Final = 0xCBD43194 - (1 << 32)

RECORD_MAGICS: Final = (MAGIC_V1, MAGIC_V2)
RECORD_MAGIC_BYTES: Final = tuple(magic.to_bytes(4, "big", signed=True) for magic in RECORD_MAGICS)
BLANK_MAGIC_BYTES: Final = MAGIC_BLANK.to_bytes(4, "big", signed=True)

SIZE_AND_MAGIC: Final = struct.Struct(">ii")
"""TOTALSIZE and MAGICCODE of a record or a blank."""
BLANK_BYTES: Final = SIZE_AND_MAGIC.size  # the smallest blank

HEAD: Final = struct.Struct(">iiiiiqqiq8sq8siqi")
"""Everything up to and including BODYLEN when both hosts are IPv4: total, magic, crc, queue id, flag, queue offset, physical
offset, sys flag, born time, born host, store time, store host, reconsume times, prepared offset, body length."""
HEAD_BYTES: Final = HEAD.size
HEAD_FIELDS: Final = (
    ("size", ">i4"), ("magic", ">i4"), ("crc", ">i4"), ("queue_id", ">i4"), ("flag", ">i4"), ("queue_offset", ">i8"),
    ("physical_offset", ">i8"), ("sys_flag", ">i4"), ("born_ms", ">i8"), ("born_host", "V8"), ("store_ms", ">i8"),
    ("store_host", "V8"), ("reconsume_times", ">i4"), ("prepared_offset", ">i8"), ("body_length", ">i4"),
)  # fmt: skip
"""HEAD as the fields of a numpy dtype."""

FRONT: Final = struct.Struct(">iiiiiqqiq")  # up to and including BORNTIMESTAMP
BACK: Final = struct.Struct(">iqi")  # RECONSUMETIMES, PREPAREDTRANSACTIONOFFSET, BODYLEN
TIMESTAMP: Final = struct.Struct(">q")

BATCH_COMMON: Final = struct.Struct(">iq8sq8siq")
"""The part of HEAD that the messages of a batch have in common: SYSFLAG to PREPAREDTRANSACTIONOFFSET."""
BATCH_HEAD: Final = struct.Struct(f">iiiiiqq{BATCH_COMMON.size}si")
"""HEAD with the common part as one piece."""

PULL_SCAN: Final = struct.Struct(">ii12xq8xi44xi")
"""TOTALSIZE, MAGICCODE, QUEUEOFFSET, SYSFLAG and, if both hosts are IPv4, BODYLEN."""

FIXED_BYTES: Final = 74  # without hosts, body, topic, properties and the length of the topic
FIXED_BYTES_V1: Final = 91  # a version 1 record with IPv4 hosts and without body, topic and properties

AT_TOTAL_SIZE: Final = 0
AT_MAGIC: Final = 4
AT_BODY_CRC: Final = 8
AT_QUEUE_ID: Final = 12
AT_QUEUE_OFFSET: Final = 20
AT_PHYSICAL_OFFSET: Final = 28
AT_SYS_FLAG: Final = 36
AT_BORN_TIMESTAMP: Final = 40
AT_BORN_HOST: Final = 48
# Positions after the hosts, if both are IPv4. Each IPv6 host before the field adds IPV6_EXTRA_BYTES.
AT_STORE_TIMESTAMP_V4: Final = 56
AT_RECONSUME_TIMES_V4: Final = 72
AT_PREPARED_OFFSET_V4: Final = 76
AT_BODY_LENGTH_V4: Final = 84
IPV6_EXTRA_BYTES: Final = 12

COMPRESSED: Final = 0x1
MULTI_TAGS: Final = 0x2
TRANSACTION_TYPE: Final = 0xC
TRANSACTION_PREPARED: Final = 0x4
TRANSACTION_COMMIT: Final = 0x8
TRANSACTION_ROLLBACK: Final = 0xC
BORN_HOST_V6: Final = 0x10
STORE_HOST_V6: Final = 0x20
INNER_BATCH: Final = 0x80
COMPRESSION_TYPE: Final = 0x700
COMPRESSION_LZ4: Final = 0x100
COMPRESSION_ZSTD: Final = 0x200
COMPRESSION_ZLIB: Final = 0x300

_I32: Final = struct.Struct(">i")
_I64: Final = struct.Struct(">q")
_I16: Final = struct.Struct(">h")
_I8: Final = struct.Struct(">b")


@dataclass(slots=True)
class Record:
    """A decoded record. `properties` are the stored bytes; sizes, magic and CRC follow from the other fields."""

    topic: str
    body: bytes
    properties: bytes = b""
    queue_id: int = 0
    flag: int = 0
    queue_offset: int = 0
    physical_offset: int = 0
    sys_flag: int = 0
    born_timestamp: int = 0
    born_host: bytes = bytes(8)
    store_timestamp: int = 0
    store_host: bytes = bytes(8)
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0
    version: int = 1

    @property
    def body_crc(self) -> int:
        return body_crc(self.body)

    @property
    def total_size(self) -> int:
        topic = self.version + len(self.topic.encode())  # the topic length takes one byte in version 1, two in version 2
        return FIXED_BYTES + len(self.born_host) + len(self.store_host) + len(self.body) + topic + len(self.properties)


def body_crc(body: Buffer) -> int:
    return crc32(body) & 0x7FFFFFFF


def decode(buffer: Buffer, pos: int = 0, *, check_crc: bool = True) -> Record:
    """Decode the record at `pos`. Raise ProtocolError unless all lengths, the magic and the body's CRC agree."""
    try:
        return _decode(buffer, pos, check_crc)
    except struct.error:
        raise ProtocolError(f"record at {pos} does not fit into a buffer of {len(buffer)} bytes") from None


def decode_all(buffer: Buffer, *, check_crc: bool = True) -> list[Record]:
    """Decode records that fill the buffer exactly, as the body of a pull response does."""
    records = []
    pos = 0
    while pos < len(buffer):
        records.append(decode(buffer, pos, check_crc=check_crc))
        pos += SIZE_AND_MAGIC.unpack_from(buffer, pos)[0]
    return records


def iter_records(buffer: Buffer) -> Iterator[tuple[int, int]]:
    """Yield position and size of the complete records at the start of the buffer, judged by size and magic only."""
    pos, length = 0, len(buffer)
    while pos + FIXED_BYTES_V1 <= length:
        size, magic = SIZE_AND_MAGIC.unpack_from(buffer, pos)
        if magic not in RECORD_MAGICS or size < FIXED_BYTES_V1 or pos + size > length:
            return
        yield pos, size
        pos += size


# ---- single fields of a record at `pos`, which the caller knows to be valid


def physical_offset_at(buffer: Buffer, pos: int = 0) -> int:
    return int(_I64.unpack_from(buffer, pos + AT_PHYSICAL_OFFSET)[0])


def queue_offset_at(buffer: Buffer, pos: int = 0) -> int:
    return int(_I64.unpack_from(buffer, pos + AT_QUEUE_OFFSET)[0])


def sys_flag_at(buffer: Buffer, pos: int = 0) -> int:
    return int(_I32.unpack_from(buffer, pos + AT_SYS_FLAG)[0])


def store_timestamp_at(buffer: Buffer, pos: int = 0) -> int:
    extra = IPV6_EXTRA_BYTES if sys_flag_at(buffer, pos) & BORN_HOST_V6 else 0
    return int(_I64.unpack_from(buffer, pos + AT_STORE_TIMESTAMP_V4 + extra)[0])


STORE_TIMESTAMP_END: Final = AT_STORE_TIMESTAMP_V4 + IPV6_EXTRA_BYTES + 8  # `store_timestamp_at` reads no further


def prepared_transaction_offset_at(buffer: Buffer, pos: int = 0) -> int:
    return int(_I64.unpack_from(buffer, pos + AT_PREPARED_OFFSET_V4 + ipv6_extra_bytes(sys_flag_at(buffer, pos)))[0])


def properties_span(buffer: bytes, pos: int = 0) -> tuple[int, int]:
    """Return the positions where the properties begin and end."""
    size, magic = SIZE_AND_MAGIC.unpack_from(buffer, pos)
    at = pos + AT_BODY_LENGTH_V4 + ipv6_extra_bytes(sys_flag_at(buffer, pos))
    at += 4 + _I32.unpack_from(buffer, at)[0]
    at += 1 + buffer[at] if magic == MAGIC_V1 else 2 + _I16.unpack_from(buffer, at)[0]
    return at + 2, pos + size


def properties_after_body(buffer: bytes, body_end: int) -> bytes:
    """Return the properties of a version 1 record whose body ends at `body_end`."""
    at = body_end + 1 + buffer[body_end]
    return buffer[at + 2 : at + 2 + (buffer[at] << 8 | buffer[at + 1])]


def ipv6_extra_bytes(sys_flag: int) -> int:
    """Return how many bytes IPv6 hosts add to the positions after both hosts."""
    return (IPV6_EXTRA_BYTES if sys_flag & BORN_HOST_V6 else 0) + (IPV6_EXTRA_BYTES if sys_flag & STORE_HOST_V6 else 0)


class RecordContent(NamedTuple):
    body: bytes
    flag: int
    sys_flag: int
    born_timestamp: int
    born_host: bytes
    reconsume_times: int


class RecordView:
    """A record whose frequently used fields are parsed and whose body is left in place."""

    __slots__ = ("body_end", "body_start", "physical_offset", "properties", "raw", "store_timestamp")

    raw: bytes
    physical_offset: int
    store_timestamp: int
    body_start: int
    body_end: int
    properties: bytes

    @classmethod
    def parse(cls, raw: bytes) -> Self | None:
        """Return a view of the record that `raw` consists of, or None unless magic and lengths agree. The CRC is not checked."""
        size = len(raw)
        if size < FIXED_BYTES_V1:
            return None
        total, magic, _, _, _, _, physical_offset, sys_flag, _ = FRONT.unpack_from(raw)
        if total != size or magic not in RECORD_MAGICS:
            return None
        store_at = AT_STORE_TIMESTAMP_V4 + (IPV6_EXTRA_BYTES if sys_flag & BORN_HOST_V6 else 0)
        body_start = HEAD_BYTES + ipv6_extra_bytes(sys_flag)
        if body_start >= size:
            return None
        body_end = body_start + BACK.unpack_from(raw, body_start - BACK.size)[2]
        if not body_start <= body_end <= size - 3:
            return None
        at = body_end + (1 + raw[body_end] if magic == MAGIC_V1 else 2 + _I16.unpack_from(raw, body_end)[0])
        if not body_end < at <= size - 2 or size - at - 2 != _I16.unpack_from(raw, at)[0]:
            return None
        view = cls.__new__(cls)
        view.raw = raw
        view.physical_offset = physical_offset
        view.store_timestamp = _I64.unpack_from(raw, store_at)[0]
        view.body_start, view.body_end = body_start, body_end
        view.properties = raw[at + 2 :]
        return view

    def content(self) -> RecordContent | None:
        """Return the body and what the producer said about it, or None if the body does not match its CRC."""
        raw, start = self.raw, self.body_start
        _, _, crc, _, flag, _, _, sys_flag, born_timestamp = FRONT.unpack_from(raw)
        body = raw[start : self.body_end]
        if crc32(body) & 0x7FFFFFFF != crc:
            return None
        born_host = raw[AT_BORN_HOST : AT_BORN_HOST + (20 if sys_flag & BORN_HOST_V6 else 8)]
        return RecordContent(body, flag, sys_flag, born_timestamp, born_host, BACK.unpack_from(raw, start - BACK.size)[0])


def encode(record: Record) -> bytes:
    """Return the bytes of a record. Raise ValueError for a record that the layout cannot represent."""
    topic = record.topic.encode()
    _check_encodable(record, topic)
    topic_length = _I8.pack(len(topic)) if record.version == 1 else _I16.pack(len(topic))
    front = FRONT.pack(
        record.total_size, MAGIC_V1 if record.version == 1 else MAGIC_V2, record.body_crc, record.queue_id, record.flag,
        record.queue_offset, record.physical_offset, record.sys_flag, record.born_timestamp,
    )  # fmt: skip
    back = BACK.pack(record.reconsume_times, record.prepared_transaction_offset, len(record.body))
    properties_length = _I16.pack(len(record.properties))
    return b"".join((
        front, record.born_host, TIMESTAMP.pack(record.store_timestamp), record.store_host, back, record.body,
        topic_length, topic, properties_length, record.properties,
    ))  # fmt: skip


def _decode(buffer: Buffer, pos: int, check_crc: bool) -> Record:
    if pos < 0:
        raise ProtocolError(f"record at the negative position {pos}")
    total, magic, crc, queue_id, flag, queue_offset, physical_offset, sys_flag, born = FRONT.unpack_from(buffer, pos)
    if magic not in RECORD_MAGICS:
        raise ProtocolError(f"record at {pos} with magic {magic & 0xFFFFFFFF:#x}, expected {MAGIC_V1 & 0xFFFFFFFF:#x}")
    if total > len(buffer) - pos:
        raise ProtocolError(f"record at {pos} of {total} bytes in a buffer of {len(buffer)}")
    at = pos + AT_BORN_HOST
    born_host = bytes(buffer[at : at + (20 if sys_flag & BORN_HOST_V6 else 8)])
    at += len(born_host)
    (stored,) = TIMESTAMP.unpack_from(buffer, at)
    at += 8
    store_host = bytes(buffer[at : at + (20 if sys_flag & STORE_HOST_V6 else 8)])
    at += len(store_host)
    reconsume_times, prepared_offset, body_length = BACK.unpack_from(buffer, at)
    body, at = _sized(buffer, at + 16, body_length, "body")
    length = _I8 if magic == MAGIC_V1 else _I16
    topic, at = _sized(buffer, at + length.size, length.unpack_from(buffer, at)[0], "topic")
    properties, at = _sized(buffer, at + 2, _I16.unpack_from(buffer, at)[0], "properties")
    if at - pos != total:
        raise ProtocolError(f"record at {pos} with TOTALSIZE {total}, but its parts have {at - pos} bytes")
    if check_crc and body_crc(body) != crc:
        raise ProtocolError(f"record at {pos} whose body has CRC {body_crc(body)}, expected {crc}")
    try:
        name = topic.decode()
    except UnicodeDecodeError:
        raise ProtocolError(f"record at {pos} whose topic is not UTF-8: {topic!r}") from None
    return Record(
        topic=name, body=body, properties=properties, queue_id=queue_id, flag=flag, queue_offset=queue_offset,
        physical_offset=physical_offset, sys_flag=sys_flag, born_timestamp=born, born_host=born_host, store_timestamp=stored,
        store_host=store_host, reconsume_times=reconsume_times, prepared_transaction_offset=prepared_offset,
        version=1 if magic == MAGIC_V1 else 2,
    )  # fmt: skip


def _sized(buffer: Buffer, at: int, length: int, part: str) -> tuple[bytes, int]:
    if not 0 <= length <= len(buffer) - at:
        raise ProtocolError(f"record whose {part} has {length} bytes, with {len(buffer) - at} left")
    return bytes(buffer[at : at + length]), at + length


def _check_encodable(record: Record, topic: bytes) -> None:
    if record.version not in (1, 2):
        raise ValueError(f"record version {record.version}, expected 1 or 2")
    longest = 127 if record.version == 1 else 32767
    if len(topic) > longest:
        raise ValueError(f"topic of {len(topic)} bytes, a version {record.version} record takes at most {longest}")
    if len(record.properties) > 32767:
        raise ValueError(f"properties of {len(record.properties)} bytes, a record takes at most 32767")
    for host, bit, name in ((record.born_host, BORN_HOST_V6, "born"), (record.store_host, STORE_HOST_V6, "store")):
        expected = 20 if record.sys_flag & bit else 8
        if len(host) != expected:
            raise ValueError(f"{name} host of {len(host)} bytes, expected {expected} by bit {bit:#x} of the sys flag")
