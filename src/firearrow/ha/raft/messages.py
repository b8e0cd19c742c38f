"""Messages between the members of an elected group and their encoding.

A message, big-endian:

    0    2  magic 0xFA52
    2    1  version 2
    3    1  kind
    4    4  group key: CRC-32 of the group's name and its members' ids. A member of another group, or one configured with other
            members, has another key and is rejected
    8    1  sender: index among the sorted member ids
    9    1  receiver
    10   2  flags
    12   4  term
    16   8  group id of the sender's log, 0: it has joined no group yet (hard_state.py)
    24      fields by kind, below
    -4   4  CRC-32 of everything before

    kind              fields                                       flags
    1 RequestVote     int32 last epoch, int64 end                  1 pre-vote, 2 requested by the leader, 8 seed
    2 VoteResponse                                                 1 pre-vote, 4 granted
    3 Probe           int64 min, int64 end, int64 commit, int64 acknowledged, n x (int32 epoch, int64 start)
    4 AppendEntries   int64 offset, int64 end, int64 commit, int64 echoed token, data
    5 AppendResponse  int64 match, int64 end, int32 epoch, int64 quarantine token, uint8 status, uint64 log id
    6 TimeoutNow
    7 Hello           the sender's broker address, UTF-8
    8 Resignation

Limits: a message has at most MAX_MESSAGE bytes, which is checked before it is read, and a table at most MAX_ENTRIES entries.
Invalid bytes raise ProtocolError; the receiver closes the connection.
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
VERSION = 2
MAX_DATA = 16 << 20
MAX_MESSAGE = MAX_DATA + 1024

_HEAD = Struct(">HBBIBBHiQ")
_VOTE = Struct(">iq")
_PROBE = Struct(">qqqq")
_EPOCH = Struct(">iq")
_APPEND = Struct(">qqqq")
_ACK = Struct(">qqiqBQ")
_CRC = Struct(">I")

_PRE, _TRANSFER, _GRANTED, _SEED = 1, 2, 4, 8


class AppendStatus(IntEnum):
    """A follower's answer to Probe or AppendEntries."""

    OK = 0
    NEEDS_PROBE = 1  # the follower does not know the leader's epoch table yet
    GAP = 2  # the data begins behind the follower's end: continue there
    STALE_TERM = 3


@dataclass(frozen=True, slots=True)
class RequestVote:
    """A request to elect the sender leader of `term`; its log ends at (last_epoch, end). A pre-vote only asks for the answer."""

    term: int
    last_epoch: int
    end: int
    pre: bool = False
    transfer: bool = False  # requested by the leader, which transfers its leadership
    seed: bool = False  # the operator declared the sender's log authoritative for members without data
    group_id: int = 0


@dataclass(frozen=True, slots=True)
class VoteResponse:
    """The answer to RequestVote. `term` is the requested one if granted, otherwise the voter's."""

    term: int
    granted: bool
    pre: bool = False
    group_id: int = 0


@dataclass(frozen=True, slots=True)
class Probe:
    """The leader's epoch table, from which a follower finds where the logs diverge.

    `acknowledged` is the offset up to which the receiver has already acknowledged the log in this term.
    """

    term: int
    min_offset: int
    end: int
    commit: int
    epochs: EpochTable
    acknowledged: int = 0
    group_id: int = 0


@dataclass(frozen=True, slots=True)
class AppendEntries:
    """Log bytes from `offset` on; a heartbeat if empty. `end` is the end of the leader's log.

    `echoed_token` is the last quarantine token that the leader received from the follower.
    """

    term: int
    offset: int
    end: int
    commit: int
    echoed_token: int = 0
    data: bytes = b""
    group_id: int = 0


@dataclass(frozen=True, slots=True)
class AppendResponse:
    """The follower's log equals the leader's up to `end` and is durable up to `match`; `epoch` is the last in its table.

    `quarantine_token` is not 0 while the follower is quarantined.
    """

    term: int
    match: int
    end: int
    epoch: int
    status: AppendStatus = AppendStatus.OK
    quarantine_token: int = 0
    log_id: int = 0
    group_id: int = 0


@dataclass(frozen=True, slots=True)
class TimeoutNow:
    """The leader's request to start an election at once, sent to a follower that holds the whole log."""

    term: int
    group_id: int = 0


@dataclass(frozen=True, slots=True)
class Resignation:
    """The notice of a leader that steps down because it no longer hears a majority. Its followers need not wait for silence."""

    term: int
    group_id: int = 0


@dataclass(frozen=True, slots=True)
class Hello:
    """The first message on a connection: the address of the sender's broker. It is not part of Raft."""

    address: str
    term: int = 0
    group_id: int = 0


Message = RequestVote | VoteResponse | Probe | AppendEntries | AppendResponse | TimeoutNow | Resignation

_KINDS: dict[type, int] = {
    RequestVote: 1,
    VoteResponse: 2,
    Probe: 3,
    AppendEntries: 4,
    AppendResponse: 5,
    TimeoutNow: 6,
    Hello: 7,
    Resignation: 8,
}
_MAX_ADDRESS = 512


class Codec:
    """Encoder and decoder of one member of a group."""

    def __init__(self, group: str, members: Sequence[str], me: str) -> None:
        self._ids = sorted(members)
        if me not in self._ids:
            raise ValueError(f"group {group}: {me} is not one of its members {', '.join(self._ids)}")
        if len(set(self._ids)) != len(self._ids):
            raise ValueError(f"group {group}: duplicate id in {', '.join(self._ids)}")
        if len(self._ids) > 255:
            raise ValueError(f"group {group}: {len(self._ids)} members, the maximum is 255")
        self._me = self._ids.index(me)
        self._key = zlib.crc32("\n".join([group, *self._ids]).encode())
        self._group = group

    def encode(self, receiver: str, message: Message | Hello, group_id: int = 0) -> bytes:
        flags, fields = _encode_fields(message)
        kind, to = _KINDS[type(message)], self._ids.index(receiver)
        head = _HEAD.pack(MAGIC, VERSION, kind, self._key, self._me, to, flags, message.term, group_id)
        whole = head + fields
        if len(whole) > MAX_MESSAGE - 4:
            raise ValueError(f"message of {len(whole)} bytes, the maximum is {MAX_MESSAGE - 4}")
        return whole + _CRC.pack(zlib.crc32(whole))

    def decode(self, data: bytes) -> tuple[str, Message | Hello]:
        """Return (sender, message). Raises ProtocolError."""
        if not _HEAD.size + 4 <= len(data) <= MAX_MESSAGE:
            raise ProtocolError(
                f"group {self._group}: a message of {len(data)} bytes, expected {_HEAD.size + 4} to {MAX_MESSAGE}"
            )
        magic, version, kind, key, sender, receiver, flags, term, group_id = _HEAD.unpack_from(data)
        if magic != MAGIC:
            raise ProtocolError(
                f"group {self._group}: magic {magic:#06x}, expected {MAGIC:#06x}: the sender is not a member of an elected group"
            )
        if version != VERSION:
            raise ProtocolError(
                f"group {self._group}: format version {version}, expected {VERSION}: run the same release on all members"
            )
        whole = memoryview(data)[:-4]
        if _CRC.unpack_from(data, len(data) - 4)[0] != zlib.crc32(whole):
            raise ProtocolError(f"group {self._group}: wrong checksum in a message of {len(data)} bytes")
        if key != self._key:
            raise ProtocolError(
                f"group {self._group}: the sender belongs to another group, or its members are not {', '.join(self._ids)}: "
                "compare dLegerGroup and dLegerPeers"
            )
        if receiver != self._me or sender >= len(self._ids) or sender == self._me:
            raise ProtocolError(
                f"group {self._group}: message from member {sender} to {receiver} at member {self._me}: duplicate member ids?"
            )
        if not 0 <= term <= MAX_EPOCH:
            raise ProtocolError(f"group {self._group}: term {term}, expected 0 to {MAX_EPOCH}")
        try:
            return self._ids[sender], _decode_fields(kind, flags, term, group_id, whole[_HEAD.size :])
        except (struct.error, ValueError) as error:
            raise ProtocolError(f"group {self._group}: kind {kind}: {error}") from error


def _encode_fields(message: Message | Hello) -> tuple[int, bytes]:
    match message:
        case RequestVote():
            flags = message.pre * _PRE | message.transfer * _TRANSFER | message.seed * _SEED
            return flags, _VOTE.pack(message.last_epoch, message.end)
        case VoteResponse():
            return message.pre * _PRE | message.granted * _GRANTED, b""
        case Probe():
            table = b"".join(_EPOCH.pack(*entry) for entry in message.epochs.entries)
            return 0, _PROBE.pack(message.min_offset, message.end, message.commit, message.acknowledged) + table
        case AppendEntries():
            return 0, _APPEND.pack(message.offset, message.end, message.commit, message.echoed_token) + message.data
        case AppendResponse():
            token, log_id = message.quarantine_token, message.log_id
            return 0, _ACK.pack(message.match, message.end, message.epoch, token, message.status, log_id)
        case TimeoutNow() | Resignation():
            return 0, b""
        case Hello():
            return 0, message.address.encode()


def _decode_fields(kind: int, flags: int, term: int, group: int, fields: memoryview) -> Message | Hello:
    match kind:
        case 1:
            last_epoch, end = _VOTE.unpack(fields)
            pre, transfer, seed = bool(flags & _PRE), bool(flags & _TRANSFER), bool(flags & _SEED)
            return RequestVote(term, _epoch(last_epoch), _offset(end), pre, transfer, seed, group)
        case 2:
            _expect_empty(fields)
            return VoteResponse(term, bool(flags & _GRANTED), bool(flags & _PRE), group)
        case 3:
            min_offset, end, commit, acknowledged = _PROBE.unpack_from(fields)
            table = EpochTable(Epoch(*entry) for entry in _EPOCH.iter_unpack(fields[_PROBE.size :]))
            if table.last != term:
                raise ValueError(f"the epoch table of the leader of term {term} ends with epoch {table.last}")
            return Probe(term, _offset(min_offset), _offset(end), _offset(commit), table, _offset(acknowledged), group)
        case 4:
            offset, end, commit, token = _APPEND.unpack_from(fields)
            data = bytes(fields[_APPEND.size :])
            return AppendEntries(term, _offset(offset), _offset(end), _offset(commit), token, data, group)
        case 5:
            match_, end, epoch, token, status, log_id = _ACK.unpack(fields)
            offsets = _offset(match_), _offset(end)
            return AppendResponse(term, *offsets, _epoch(epoch), AppendStatus(status), token, log_id, group)
        case 6:
            _expect_empty(fields)
            return TimeoutNow(term, group)
        case 7:
            if len(fields) > _MAX_ADDRESS:
                raise ValueError(f"an address of {len(fields)} bytes, the maximum is {_MAX_ADDRESS}")
            address = bytes(fields).decode()
            parse_address(address)
            return Hello(address, group_id=group)
        case 8:
            _expect_empty(fields)
            return Resignation(term, group)
    raise ValueError("unknown kind")


def _offset(value: int) -> int:
    if not 0 <= value <= MAX_OFFSET:
        raise ValueError(f"offset {value} is negative")
    return value


def _epoch(value: int) -> int:
    if not 0 <= value <= MAX_EPOCH:
        raise ValueError(f"epoch {value} is negative")
    return value


def _expect_empty(fields: memoryview) -> None:
    if len(fields):
        raise ValueError(f"{len(fields)} unexpected bytes")
