"""The stored record: what the commit log holds, a pull returns and replication ships.

All integers big-endian. B and S are 8 (IPv4) or 20 (IPv6, when SYSFLAG has 0x10 or 0x20): the address, then the port as four
bytes. T is 1 in version 1 and 2 in version 2, which only long retry topics need.

    offset   size   field
    0        4      TOTALSIZE     74 + B + S + T + body + topic + properties (91 + ... for version 1 with IPv4)
    4        4      MAGICCODE     0xDAA320A7 version 1, 0xDAA320AB version 2
    8        4      BODYCRC       CRC-32 of the body, top bit cleared
    12       4      QUEUEID
    16       4      FLAG          the producer's own
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

Records follow one another without a gap. In a commit log segment the rest after the last record begins with its size and
0xCBD43194 instead.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final
from zlib import crc32

from firearrow.wire.errors import ProtocolError

Buffer = bytes | bytearray | memoryview

MAGIC_V1: Final = 0xDAA320A7 - (1 << 32)
MAGIC_V2: Final = 0xDAA320AB - (1 << 32)
MAGIC_BLANK: Final = 0xCBD43194 - (1 << 32)

HEAD: Final = struct.Struct(">iiiiiqqiq8sq8siqi")
"""Everything up to and including BODYLEN when both hosts are IPv4: total, magic, crc, queue id, flag, queue offset, physical
offset, sys flag, born time, born host, store time, store host, reconsume times, prepared offset, body length."""
HEAD_BYTES: Final = HEAD.size
FIXED_BYTES_V1: Final = 91  # a version 1 record with IPv4 hosts and neither body nor topic nor properties

AT_TOTAL_SIZE: Final = 0
AT_MAGIC: Final = 4
AT_BODY_CRC: Final = 8
AT_QUEUE_ID: Final = 12
AT_FLAG: Final = 16
AT_QUEUE_OFFSET: Final = 20
AT_PHYSICAL_OFFSET: Final = 28
AT_SYS_FLAG: Final = 36
AT_BORN_TIMESTAMP: Final = 40
AT_BORN_HOST: Final = 48
AT_STORE_TIMESTAMP_V4: Final = 56  # 12 more when the born host is IPv6
AT_BODY_LENGTH_V4: Final = 84  # 12 more for each IPv6 host

COMPRESSED: Final = 0x1
MULTI_TAGS: Final = 0x2
TRANSACTION_TYPE: Final = 0xC
TRANSACTION_NOT: Final = 0x0
TRANSACTION_PREPARED: Final = 0x4
TRANSACTION_COMMIT: Final = 0x8
TRANSACTION_ROLLBACK: Final = 0xC
BORN_HOST_V6: Final = 0x10
STORE_HOST_V6: Final = 0x20
NEED_UNWRAP: Final = 0x40
INNER_BATCH: Final = 0x80
COMPRESSION_TYPE: Final = 0x700
COMPRESSION_LZ4: Final = 0x100
COMPRESSION_ZSTD: Final = 0x200
COMPRESSION_ZLIB: Final = 0x300

_FRONT: Final = struct.Struct(">iiiiiqqiq")  # up to and including BORNTIMESTAMP
_TIME: Final = struct.Struct(">q")
_BACK: Final = struct.Struct(">iqi")  # RECONSUMETIMES, PREPAREDTRANSACTIONOFFSET, BODYLEN
_I16: Final = struct.Struct(">h")
_I8: Final = struct.Struct(">b")


@dataclass(slots=True)
class Record:
    """One record. `properties` stay as they are stored; the sizes, the magic and the CRC follow from the rest."""

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
        topic = self.version + len(self.topic.encode())  # the length of the topic takes as many bytes as the version says
        return 74 + len(self.born_host) + len(self.store_host) + len(self.body) + topic + len(self.properties)


def body_crc(body: Buffer) -> int:
    return crc32(body) & 0x7FFFFFFF


def decode(buffer: Buffer, pos: int = 0, *, check_crc: bool = True) -> Record:
    """The record that begins at `pos`. Raises ProtocolError unless every length, the magic and the body's CRC agree."""
    try:
        return _decode(buffer, pos, check_crc)
    except struct.error:
        raise ProtocolError(f"a record at {pos} ends after the buffer of {len(buffer)} bytes") from None


def decode_all(buffer: Buffer, *, check_crc: bool = True) -> list[Record]:
    """A run of records that fills the buffer exactly, as the body of a pull does."""
    records = []
    pos = 0
    while pos < len(buffer):
        records.append(decode(buffer, pos, check_crc=check_crc))
        pos += struct.unpack_from(">i", buffer, pos)[0]
    return records


def encode(record: Record) -> bytes:
    """The record's bytes. Raises ValueError where the layout cannot say what the record says."""
    topic = record.topic.encode()
    _check_encodable(record, topic)
    topic_length = _I8.pack(len(topic)) if record.version == 1 else _I16.pack(len(topic))
    front = _FRONT.pack(
        record.total_size, MAGIC_V1 if record.version == 1 else MAGIC_V2, record.body_crc, record.queue_id, record.flag,
        record.queue_offset, record.physical_offset, record.sys_flag, record.born_timestamp,
    )  # fmt: skip
    back = _BACK.pack(record.reconsume_times, record.prepared_transaction_offset, len(record.body))
    properties_length = _I16.pack(len(record.properties))
    return b"".join((
        front, record.born_host, _TIME.pack(record.store_timestamp), record.store_host, back, record.body,
        topic_length, topic, properties_length, record.properties,
    ))  # fmt: skip


def _decode(buffer: Buffer, pos: int, check_crc: bool) -> Record:
    if pos < 0:
        raise ProtocolError(f"a record at the negative position {pos}")
    total, magic, crc, queue_id, flag, queue_offset, physical_offset, sys_flag, born = _FRONT.unpack_from(buffer, pos)
    if magic not in (MAGIC_V1, MAGIC_V2):
        raise ProtocolError(f"a record at {pos} with the magic {magic & 0xFFFFFFFF:#x}, expected {MAGIC_V1 & 0xFFFFFFFF:#x}")
    if total > len(buffer) - pos:
        raise ProtocolError(f"a record at {pos} of {total} bytes in a buffer of {len(buffer)}")
    at = pos + AT_BORN_HOST
    born_host = bytes(buffer[at : at + (20 if sys_flag & BORN_HOST_V6 else 8)])
    at += len(born_host)
    (stored,) = _TIME.unpack_from(buffer, at)
    at += 8
    store_host = bytes(buffer[at : at + (20 if sys_flag & STORE_HOST_V6 else 8)])
    at += len(store_host)
    reconsume_times, prepared_offset, body_length = _BACK.unpack_from(buffer, at)
    body, at = _sized(buffer, at + 16, body_length, "body")
    length = _I8 if magic == MAGIC_V1 else _I16
    topic, at = _sized(buffer, at + length.size, length.unpack_from(buffer, at)[0], "topic")
    properties, at = _sized(buffer, at + 2, _I16.unpack_from(buffer, at)[0], "properties")
    if at - pos != total:
        raise ProtocolError(f"a record at {pos} says {total} bytes, its parts take {at - pos}")
    if check_crc and body_crc(body) != crc:
        raise ProtocolError(f"a record at {pos} whose body has the CRC {body_crc(body)}, expected {crc}")
    try:
        name = topic.decode()
    except UnicodeDecodeError:
        raise ProtocolError(f"a record at {pos} whose topic is not UTF-8: {topic!r}") from None
    return Record(
        topic=name, body=body, properties=properties, queue_id=queue_id, flag=flag, queue_offset=queue_offset,
        physical_offset=physical_offset, sys_flag=sys_flag, born_timestamp=born, born_host=born_host, store_timestamp=stored,
        store_host=store_host, reconsume_times=reconsume_times, prepared_transaction_offset=prepared_offset,
        version=1 if magic == MAGIC_V1 else 2,
    )  # fmt: skip


def _sized(buffer: Buffer, at: int, length: int, what: str) -> tuple[bytes, int]:
    if not 0 <= length <= len(buffer) - at:
        raise ProtocolError(f"a record whose {what} has {length} bytes, with {len(buffer) - at} left")
    return bytes(buffer[at : at + length]), at + length


def _check_encodable(record: Record, topic: bytes) -> None:
    if record.version not in (1, 2):
        raise ValueError(f"record version {record.version}, expected 1 or 2")
    longest = 127 if record.version == 1 else 32767
    if len(topic) > longest:
        raise ValueError(f"a topic of {len(topic)} bytes, a record of version {record.version} takes at most {longest}")
    if len(record.properties) > 32767:
        raise ValueError(f"properties of {len(record.properties)} bytes, a record takes at most 32767")
    for host, bit, what in ((record.born_host, BORN_HOST_V6, "born"), (record.store_host, STORE_HOST_V6, "store")):
        expected = 20 if record.sys_flag & bit else 8
        if len(host) != expected:
            raise ValueError(f"a {what} host of {len(host)} bytes, expected {expected} because of bit {bit:#x} of the sys flag")
