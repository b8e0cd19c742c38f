"""What members of an elected group say to each other, and how it looks on the wire.

A message, big endian:

    0    2  magic 0xFA52
    2    1  version 1
    3    1  kind
    4    4  group key: CRC-32 of the group's name and its members' ids. Who belongs to another group, or counts other members, has
            another key and is refused
    8    1  sender     place among the members' ids, sorted
    9    1  receiver
    10   2  flags
    12   4  term
    16      by kind, below
    -4   4  CRC-32 of everything before

    kind         fields                                       flags
    1 Vote       int32 last epoch, int64 end                  1 pre-vote, 2 asked to by the leader
    2 VoteReply                                               1 pre-vote, 4 granted
    3 Probe      int64 min, int64 end, int64 commit, n x (int32 epoch, int64 start)
    4 Append     int64 offset, int64 end, int64 commit, int64 echo, data
    5 Ack        int64 match, int64 end, int32 epoch, int64 doubt, uint8 verdict
    6 TakeOver
    7 Hello      the sender's broker address, UTF-8

Limits: a message has at most MAX_MESSAGE bytes, checked before it is read; a table at most MAX_ENTRIES entries. Bytes that break
a rule raise ProtocolError: the connection they came on is no member's.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from struct import Struct

from firearrow.ha.raft.epochs import MAX_EPOCH, MAX_OFFSET, Epoch, EpochTable
from firearrow.net.address import parse_address
from firearrow.wire.errors import ProtocolError

MAGIC = 0xFA52
VERSION = 1
MAX_DATA = 16 << 20
MAX_MESSAGE = MAX_DATA + 1024

_HEAD = Struct(">HBBIBBHi")
_VOTE = Struct(">iq")
_PROBE = Struct(">qqq")
_EPOCH = Struct(">iq")
_APPEND = Struct(">qqqq")
_ACK = Struct(">qqiqB")
_CRC = Struct(">I")

_PRE, _TRANSFER, _GRANTED = 1, 2, 4


class Verdict(IntEnum):
    """What a follower makes of what its leader sent."""

    OK = 0
    PROBE = 1  # I do not know your table yet
    GAP = 2  # I have nothing up to where this begins: go on at my end
    STALE = 3  # your term is over


@dataclass(frozen=True, slots=True)
class Vote:
    """Make me leader of `term`; my log ends at (last_epoch, end). As a pre-vote: would you?"""

    term: int
    last_epoch: int
    end: int
    pre: bool = False
    transfer: bool = False


@dataclass(frozen=True, slots=True)
class VoteReply:
    """`term` is the one asked for when granted, the voter's own when not."""

    term: int
    granted: bool
    pre: bool = False


@dataclass(frozen=True, slots=True)
class Probe:
    """I lead `term`; this is my table. Where do we agree?"""

    term: int
    min_offset: int
    end: int
    commit: int
    epochs: EpochTable


@dataclass(frozen=True, slots=True)
class Append:
    """The log from `offset` on; nothing when it is a heartbeat. `end` is the leader's, `echo` the last doubt it was told of."""

    term: int
    offset: int
    end: int
    commit: int
    echo: int = 0
    data: bytes = b""


@dataclass(frozen=True, slots=True)
class Ack:
    """My log equals yours up to `end` and is durable up to `match`; `epoch` is the last in my table. `doubt` is not 0 while the
    sender is in doubt."""

    term: int
    match: int
    end: int
    epoch: int
    verdict: Verdict = Verdict.OK
    doubt: int = 0


@dataclass(frozen=True, slots=True)
class TakeOver:
    """You have everything I have: stand for election now."""

    term: int


@dataclass(frozen=True, slots=True)
class Hello:
    """The first thing said on a connection, and no business of raft's: where clients find the sender's broker."""

    address: str
    term: int = 0


Message = Vote | VoteReply | Probe | Append | Ack | TakeOver

_KINDS: dict[type, int] = {Vote: 1, VoteReply: 2, Probe: 3, Append: 4, Ack: 5, TakeOver: 6, Hello: 7}
_MAX_ADDRESS = 512


class Codec:
    """Encodes and decodes the messages of one group as one of its members."""

    def __init__(self, group: str, members: Sequence[str], me: str) -> None:
        self._ids = sorted(members)
        if me not in self._ids:
            raise ValueError(f"group {group}: {me} is not among its members {', '.join(self._ids)}")
        if len(set(self._ids)) != len(self._ids):
            raise ValueError(f"group {group}: the same id twice among {', '.join(self._ids)}")
        if len(self._ids) > 255:
            raise ValueError(f"group {group}: {len(self._ids)} members, at most 255 are possible")
        self._me = self._ids.index(me)
        self._key = zlib.crc32("\n".join([group, *self._ids]).encode())
        self._group = group

    def encode(self, receiver: str, message: Message | Hello) -> bytes:
        flags, fields = _encoded(message)
        head = _HEAD.pack(
            MAGIC, VERSION, _KINDS[type(message)], self._key, self._me, self._ids.index(receiver), flags, message.term
        )
        whole = head + fields
        if len(whole) > MAX_MESSAGE - 4:
            raise ValueError(f"message of {len(whole)} bytes, at most {MAX_MESSAGE - 4} are possible")
        return whole + _CRC.pack(zlib.crc32(whole))

    def decode(self, data: bytes) -> tuple[str, Message | Hello]:
        """(sender, message), or ProtocolError."""
        if not _HEAD.size + 4 <= len(data) <= MAX_MESSAGE:
            raise ProtocolError(
                f"group {self._group}: a message of {len(data)} bytes, expected {_HEAD.size + 4} to {MAX_MESSAGE}"
            )
        magic, version, kind, key, sender, receiver, flags, term = _HEAD.unpack_from(data)
        if magic != MAGIC:
            raise ProtocolError(
                f"group {self._group}: magic {magic:#06x}, expected {MAGIC:#06x}: the sender is no member of a group"
            )
        if version != VERSION:
            raise ProtocolError(
                f"group {self._group}: format {version}, this member speaks {VERSION}: run the same release everywhere"
            )
        whole = memoryview(data)[:-4]
        if _CRC.unpack_from(data, len(data) - 4)[0] != zlib.crc32(whole):
            raise ProtocolError(f"group {self._group}: checksum of a message of {len(data)} bytes is wrong")
        if key != self._key:
            raise ProtocolError(
                f"group {self._group}: the sender belongs to another group or counts other members than {', '.join(self._ids)}: "
                "compare dLegerGroup and dLegerPeers"
            )
        if receiver != self._me or sender >= len(self._ids) or sender == self._me:
            raise ProtocolError(
                f"group {self._group}: a message from member {sender} to {receiver} came to {self._me}: two have one id?"
            )
        if not 0 <= term <= MAX_EPOCH:
            raise ProtocolError(f"group {self._group}: term {term}, expected 0 to {MAX_EPOCH}")
        try:
            return self._ids[sender], _decoded(kind, flags, term, whole[_HEAD.size :])
        except (struct.error, ValueError) as error:
            raise ProtocolError(f"group {self._group}: kind {kind}: {error}") from error


def _encoded(message: Message | Hello) -> tuple[int, bytes]:
    match message:
        case Vote():
            flags = message.pre * _PRE | message.transfer * _TRANSFER
            return flags, _VOTE.pack(message.last_epoch, message.end)
        case VoteReply():
            return message.pre * _PRE | message.granted * _GRANTED, b""
        case Probe():
            table = b"".join(_EPOCH.pack(*entry) for entry in message.epochs.entries)
            return 0, _PROBE.pack(message.min_offset, message.end, message.commit) + table
        case Append():
            return 0, _APPEND.pack(message.offset, message.end, message.commit, message.echo) + message.data
        case Ack():
            return 0, _ACK.pack(message.match, message.end, message.epoch, message.doubt, message.verdict)
        case TakeOver():
            return 0, b""
        case Hello():
            return 0, message.address.encode()


def _decoded(kind: int, flags: int, term: int, fields: memoryview) -> Message | Hello:
    match kind:
        case 1:
            last_epoch, end = _VOTE.unpack(fields)
            return Vote(term, _epoch(last_epoch), _offset(end), bool(flags & _PRE), bool(flags & _TRANSFER))
        case 2:
            _nothing(fields)
            return VoteReply(term, bool(flags & _GRANTED), bool(flags & _PRE))
        case 3:
            min_offset, end, commit = _PROBE.unpack_from(fields)
            table = EpochTable(Epoch(*entry) for entry in _EPOCH.iter_unpack(fields[_PROBE.size :]))
            if table.last != term:
                raise ValueError(f"the table of the leader of term {term} ends with epoch {table.last}")
            return Probe(term, _offset(min_offset), _offset(end), _offset(commit), table)
        case 4:
            offset, end, commit, echo = _APPEND.unpack_from(fields)
            return Append(term, _offset(offset), _offset(end), _offset(commit), echo, bytes(fields[_APPEND.size :]))
        case 5:
            match_, end, epoch, doubt, verdict = _ACK.unpack(fields)
            return Ack(term, _offset(match_), _offset(end), _epoch(epoch), Verdict(verdict), doubt)
        case 6:
            _nothing(fields)
            return TakeOver(term)
        case 7:
            if len(fields) > _MAX_ADDRESS:
                raise ValueError(f"an address of {len(fields)} bytes")
            address = bytes(fields).decode()
            parse_address(address)
            return Hello(address)
    raise ValueError("unknown kind")


def _offset(value: int) -> int:
    if not 0 <= value <= MAX_OFFSET:
        raise ValueError(f"offset {value} is negative")
    return value


def _epoch(value: int) -> int:
    if not 0 <= value <= MAX_EPOCH:
        raise ValueError(f"epoch {value} is negative")
    return value


def _nothing(fields: memoryview) -> None:
    if len(fields):
        raise ValueError(f"{len(fields)} bytes too many")
