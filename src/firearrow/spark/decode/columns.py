"""Columns of the table of a topic, decoded from a run of records.

All reads use this decoder: pulls of a batch, of a stream, and store files. Only requested columns are decoded; `properties`, the
hosts and `offsetMsgId` cost most.

A decode has a fixed cost of some hundred microseconds whatever the number of records, so callers pass thousands at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from firearrow.client.compression import DecompressionBudget
from firearrow.spark.decode.properties import PropertyColumns
from firearrow.spark.decode.records import Records
from firearrow.spark.decode.schema import TYPES
from firearrow.spark.decode.slices import Ints, numbers, repeated_text, slices, text_slices, valid_text
from firearrow.spark.errors import SparkOptionError, suggest
from firearrow.wire import record
from firearrow.wire.message_ids import host_text, offset_msg_id

ARROW_TYPES: Final = {
    "string": pa.string(), "int": pa.int32(), "bigint": pa.int64(), "binary": pa.binary(),
    "timestamp": pa.timestamp("us", tz="UTC"), "map<string,string>": pa.map_(pa.string(), pa.string()),
}  # fmt: skip
_ALTERNATIVE_TYPES: Final = {"properties": "string", "body": "string"}
"""Alternative types of a column: properties as stored, a body that is text."""


@dataclass(frozen=True, slots=True)
class Columns:
    """Names and types of the requested columns, in order. Plain data, sent to executors."""

    names: tuple[str, ...]
    types: tuple[str, ...]
    titles: tuple[str, ...]  # the names in the result

    @property
    def ddl(self) -> str:
        return ", ".join(f"{name} {kind}" for name, kind in zip(self.names, self.types, strict=True))


@lru_cache(maxsize=64)  # building it takes as long as decoding some columns of a thousand records
def _arrow_schema(columns: Columns) -> Any:
    return pa.schema([(title, ARROW_TYPES[kind]) for title, kind in zip(columns.titles, columns.types, strict=True)])


def select_columns(names: Sequence[str] | None, properties_as: str = "map") -> Columns:
    """Return the columns of these names, all if None. SparkOptionError for an unknown name."""
    types = dict(TYPES, properties="string") if properties_as == "string" else TYPES
    wanted = tuple(TYPES) if names is None else tuple(_named(name) for name in names)
    if not wanted:
        raise SparkOptionError("option columns is empty: name at least one column, or omit the option")
    return Columns(wanted, tuple(types[name] for name in wanted), wanted)


def columns_of_schema(fields: Sequence[tuple[str, str]]) -> Columns:
    """Return the columns of a user's schema, given as (name, type). SparkOptionError for a wrong type."""
    names = tuple(_named(name) for name, _ in fields)
    for name, (_, kind) in zip(names, fields, strict=True):
        if kind != TYPES[name] and kind != _ALTERNATIVE_TYPES.get(name):
            other = f" or {_ALTERNATIVE_TYPES[name]}" if name in _ALTERNATIVE_TYPES else ""
            raise SparkOptionError(f"the column {name} of the schema has type {kind}, expected {TYPES[name]}{other}")
    return Columns(names, tuple(kind for _, kind in fields), tuple(title for title, _ in fields))


def _named(name: str) -> str:
    by_lower = {known.lower(): known for known in TYPES}
    found = by_lower.get(name.strip().lower())
    if found is None:
        expected = f"expected some of {', '.join(TYPES)}"
        raise SparkOptionError(f"unknown column {name.strip()!r}; {suggest(name, TYPES, expected)}")
    return found


def record_batch(records: Records, columns: Columns, *, broker_name: str | None, decompress: bool = True) -> Any:
    """Decode records into an Arrow record batch."""
    decoder = _ColumnDecoder(records, broker_name, decompress)
    arrays = [decoder.column(name, kind) for name, kind in zip(columns.names, columns.types, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=_arrow_schema(columns))


def tags_of(records: Records) -> Any:
    """Return the tags, null where a message has none."""
    return PropertyColumns(records).value("TAGS")


class _ColumnDecoder:
    """Decoder of the columns of one run of records."""

    def __init__(self, records: Records, broker_name: str | None, decompress: bool) -> None:
        self._records = records
        self._broker_name = broker_name
        self._decompress = decompress

    def column(self, name: str, kind: str) -> Any:
        if name in _FIELDS:
            field, width = _FIELDS[name]
            return numbers(self._records.head[field].astype(width), ARROW_TYPES[kind])
        if name in _TIMES:
            return numbers(self._records.field(_TIMES[name]) * 1000, ARROW_TYPES[kind])
        if name in _PROPERTIES:
            return self._properties.value(_PROPERTIES[name])
        if name in _HOSTS:
            return self._host_texts(*_HOSTS[name])
        return _DECODERS[name](self, kind)

    def topic(self, kind: str) -> Any:
        records = self._records
        common = records.common_topic()
        if common is not None:
            return repeated_text(common.decode("utf-8", "replace"), len(records))
        return text_slices(records.buffer, records.topic_start, records.topic_end)

    def broker_name(self, kind: str) -> Any:
        return repeated_text(self._broker_name, len(self._records))

    def msg_id(self, kind: str) -> Any:
        ids = self._properties.value("UNIQ_KEY")
        return pc.coalesce(ids, self.offset_msg_id(kind)) if ids.null_count else ids

    def offset_msg_id(self, kind: str) -> Any:
        records = self._records
        count = len(records)
        if self._any_v6:
            hosts, offsets = self._hosts(record.STORE_HOST_V6), records.field("physical_offset").tolist()
            return pa.array(map(offset_msg_id, hosts, offsets), pa.string())
        parts = np.empty((count, 16), np.uint8)
        parts[:, :8] = np.ascontiguousarray(records.head["store_host"]).view(np.uint8).reshape(count, 8)
        parts[:, 8:] = np.ascontiguousarray(records.head["physical_offset"]).view(np.uint8).reshape(count, 8)
        bounds = np.arange(0, 32 * count + 1, 32, dtype=np.int32)
        return pa.Array.from_buffers(pa.string(), count, [None, pa.py_buffer(bounds), pa.py_buffer(_HEX.take(parts))])

    def properties(self, kind: str) -> Any:
        return self._properties.raw if kind == "string" else self._properties.map()

    def body(self, kind: str) -> Any:
        records = self._records
        bodies = slices(records.buffer, records.body_start, records.body_end, pa.binary())
        if self._decompress:
            bodies = self._decompress_bodies(bodies)
        return valid_text(bodies.view(pa.string())) if kind == "string" else bodies

    def _decompress_bodies(self, bodies: Any) -> Any:
        flags = self._records.field("sys_flag")
        rows = np.flatnonzero(flags & record.COMPRESSED)
        if not len(rows):
            return bodies
        compressed_bytes = int((self._records.body_end - self._records.body_start)[rows].sum())
        budget = DecompressionBudget(compressed_bytes)
        plain = [budget.decompress(bodies[row].as_py(), int(flags[row])) for row in rows.tolist()]
        order = np.arange(len(bodies))
        order[rows] = len(bodies) + np.arange(len(rows))
        return pa.concat_arrays([bodies, pa.array(plain, pa.binary())]).take(pa.array(order))

    @cached_property
    def _any_v6(self) -> bool:
        return bool((self._records.field("sys_flag") & _ANY_V6).any())

    @cached_property
    def _properties(self) -> PropertyColumns:
        return PropertyColumns(self._records)

    def _host_texts(self, field: str, v6: int) -> Any:
        """Return hosts as text. Few hosts are distinct, so each is formatted once."""
        if self._any_v6:
            return pa.array([host_text(host) for host in self._hosts(v6)], pa.string())
        hosts = np.ascontiguousarray(self._records.head[field]).view(np.int64).ravel()
        if len(hosts) and (hosts == hosts[0]).all():
            return repeated_text(host_text(hosts[0].tobytes()), len(hosts))
        distinct, indexes = np.unique(hosts, return_inverse=True)
        return pa.array([host_text(host.tobytes()) for host in distinct], pa.string()).take(pa.array(indexes.ravel()))

    def _hosts(self, v6: int) -> list[bytes]:
        """Return the hosts one by one, for records of which some have IPv6 hosts."""
        records = self._records
        flags = records.field("sys_flag")
        start = records.start + record.AT_BORN_HOST
        if v6 == record.STORE_HOST_V6:
            start = start + 16 + np.where(flags & record.BORN_HOST_V6, 12, 0)
        end: Ints = start + np.where(flags & v6, 20, 8)
        return [records.buffer[first:last] for first, last in zip(start.tolist(), end.tolist(), strict=True)]


_ANY_V6: Final = record.BORN_HOST_V6 | record.STORE_HOST_V6  # an IPv6 born host also shifts the store host
_HEX: Final = np.frombuffer("".join(f"{value:02X}" for value in range(256)).encode(), np.uint16)
_FIELDS: Final = {
    "queueId": ("queue_id", "i4"), "queueOffset": ("queue_offset", "i8"), "flag": ("flag", "i4"), "sysFlag": ("sys_flag", "i4"),
    "reconsumeTimes": ("reconsume_times", "i4"), "preparedTransactionOffset": ("prepared_offset", "i8"),
    "commitLogOffset": ("physical_offset", "i8"), "storeSize": ("size", "i4"), "bodyCRC": ("crc", "i4"),
}  # fmt: skip
_TIMES: Final = {"bornTimestamp": "born_ms", "storeTimestamp": "store_ms"}
_PROPERTIES: Final = {"keys": "KEYS", "tags": "TAGS"}
_HOSTS: Final = {"bornHost": ("born_host", record.BORN_HOST_V6), "storeHost": ("store_host", record.STORE_HOST_V6)}
_DECODERS: Final[dict[str, Callable[[_ColumnDecoder, str], Any]]] = {
    "topic": _ColumnDecoder.topic,
    "brokerName": _ColumnDecoder.broker_name,
    "msgId": _ColumnDecoder.msg_id,
    "offsetMsgId": _ColumnDecoder.offset_msg_id,
    "properties": _ColumnDecoder.properties,
    "body": _ColumnDecoder.body,
}
