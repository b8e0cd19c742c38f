"""Conversion of the rows of an Arrow batch into the bytes of a batch send.

The properties of a message are its unique id, the values of the property columns and of the map, `__SPARK_ID` (the identity of
its row) and, for brokers that deduplicate, producer id and sequence number. These two come last, where the broker finds them
fastest (`broker/dedup`). Arrow builds everything column by column; individual rows are inspected only to report an error.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from firearrow.client.producer import message_ids
from firearrow.client.producer.validation import RESERVED
from firearrow.clock import wall_ms
from firearrow.spark.decode.records import Bools
from firearrow.spark.decode.slices import Ints
from firearrow.spark.errors import SparkOptionError
from firearrow.spark.write.input_columns import InputColumns
from firearrow.wire import batch
from firearrow.wire.properties import MAX_BYTES

SPARK_ID: Final = "__SPARK_ID"
NOT_COPIED: Final = (RESERVED | {SPARK_ID}) - {"TAGS", "KEYS"}
"""Properties of a read message that are not copied to a written one."""

_MAX_ROWS: Final = 1 << 32  # per partition and micro-batch
_FROM_COLUMNS: Final = {
    "KEYS": "keys", "TAGS": "tags", "__SHARDINGKEY": "shardingKey", "DELAY": "delayLevel", "TIMER_DELIVER_MS": "deliverTimeMs",
}  # fmt: skip
_DELAY_PROPERTIES: Final = ("DELAY", "TIMER_DELIVER_MS")
_HEADER: Final = np.dtype([("total", ">i4"), ("magic_and_crc", ">i8"), ("flag", ">i4"), ("length", ">i4")])
_BYTES: Final = pa.large_binary()
_EMPTY: Final = pa.scalar(b"", _BYTES)


class Origin(NamedTuple):
    """Identity of a writing task: the query (or job), the micro-batch and the partition."""

    writer: str
    batch_id: int
    partition: int

    @property
    def producer_id(self) -> str:
        return f"{self.writer}/{self.partition}"

    def number(self, row: int) -> int:
        return self.batch_id * _MAX_ROWS + row

    def spark_id(self, row: int | str) -> str:
        return f"{self.writer}/{self.batch_id}/{self.partition}/{row}"


def new_writer_id() -> str:
    return uuid.uuid4().hex


@dataclass(slots=True)
class Messages:
    """Encoded messages of a batch send (`wire/batch.py`) in one contiguous Arrow array, `frames`."""

    frames: Any
    delayed: Bools | None  # None: no message is delayed
    body_bytes: int

    @property
    def data(self) -> memoryview:
        return memoryview(self.frames.buffers()[2])

    @property
    def bounds(self) -> Ints:
        """Offsets into `data`: message i spans bounds[i] to bounds[i + 1]."""
        return np.frombuffer(self.frames.buffers()[1], np.int64)[: len(self.frames) + 1]

    def take(self, order: Ints) -> Messages:
        delayed = None if self.delayed is None else self.delayed[order]
        return Messages(self.frames.take(pa.array(order)), delayed, self.body_bytes)


class MessageBuilder:
    """Builder of the messages of one task."""

    def __init__(self, columns: InputColumns, origin: Origin, *, numbered: bool) -> None:
        self._columns = columns
        self._origin = origin
        self._numbered = numbered
        self._next_id = message_ids.id_generator(message_ids.own_ip())

    def messages(self, rows: Any, first: int) -> Messages:
        """Convert rows; `first` is the index of the first in its partition. SparkOptionError names an invalid row."""
        body = _bytes(self._columns.column(rows, "body"))
        lengths = _lengths(body)
        if len(lengths) and not lengths.min():
            raise self._row_error(first + int(lengths.argmin()), "has an empty body, which brokers reject")
        blocks, delayed = self._properties(rows, first)
        sizes = _lengths(blocks)
        flag = self._columns.column(rows, "flag")
        headers = np.zeros(len(body), _HEADER)
        headers["total"] = batch.FIXED_BYTES + lengths + sizes
        headers["flag"] = 0 if flag is None else pc.fill_null(flag, 0).to_numpy(zero_copy_only=False)
        headers["length"] = lengths
        return Messages(_join(_as_binary(headers), body, _as_binary(sizes.astype(">i2")), blocks), delayed, int(lengths.sum()))

    def _properties(self, rows: Any, first: int) -> tuple[Any, Bools | None]:
        count = rows.num_rows
        numbers = np.arange(first, first + count)
        filled: dict[str, Bools] = {}
        parts: list[Any] = []
        for name, column in _FROM_COLUMNS.items():
            values = self._columns.column(rows, column)
            if values is not None:
                values = _nonzero_digits(values) if pa.types.is_integer(values.type) else _bytes(values)
                filled[name] = _lengths(values) > 0
                parts += _encode_property(name, values, filled[name])
        counts = 3 + 2 * self._numbered + sum((one.astype(np.int64) for one in filled.values()), np.zeros(count, np.int64))
        properties = self._columns.column(rows, "properties")
        if properties is not None:
            given, entries = _encode_map(properties, filled)
            parts.insert(0, given)
            counts += entries
        blocks = _join(
            _text("UNIQ_KEY\x01"), self._unique_keys(count), _text("\x02WAIT\x01true\x02"), *parts,
            _text(f"{SPARK_ID}\x01"), self._spark_ids(rows, numbers), _text("\x02"), *self._producer(numbers),
        )  # fmt: skip
        self._check(blocks, counts, first)
        delayed = [filled[name] for name in _DELAY_PROPERTIES if name in filled and filled[name].any()]
        return blocks, np.logical_or.reduce(delayed) if delayed else None

    def _unique_keys(self, count: int) -> Any:
        now_ms = wall_ms()
        return pa.array([self._next_id(now_ms).encode() for _ in range(count)], _BYTES)

    def _spark_ids(self, rows: Any, numbers: Ints) -> Any:
        generated = _join(_text(self._origin.spark_id("")), _digits(pa.array(numbers)))
        given = self._columns.column(rows, "idempotencyKey")
        if given is None:
            return generated
        given = _bytes(given)
        return pc.if_else(pa.array(_lengths(given) > 0), given, generated)

    def _producer(self, numbers: Ints) -> tuple[Any, ...]:
        if not self._numbered:
            return ()
        head = _text(f"__PRODUCER_ID\x01{self._origin.producer_id}\x02__PRODUCER_SEQ\x01")
        return head, _digits(pa.array(numbers + self._origin.number(0))), _text("\x02")

    def _check(self, blocks: Any, counts: Ints, first: int) -> None:
        """Reject oversized properties, and separators in names or values, which would split a property."""
        sizes = _lengths(blocks)
        data = np.frombuffer(blocks.buffers()[2] or b"", np.uint8)
        wanted = int(counts.sum())
        if len(sizes) and (sizes.max() > MAX_BYTES or any(np.count_nonzero(data == separator) != wanted for separator in (1, 2))):
            found = [pc.count_substring(blocks, separator).to_numpy() for separator in (b"\x01", b"\x02")]
            bad = int(np.argmax((sizes > MAX_BYTES) | (found[0] != counts) | (found[1] != counts)))
            raise SparkOptionError(
                f"the properties of row {first + bad} of partition {self._origin.partition} have {sizes[bad]} bytes (limit "
                f"{MAX_BYTES}), or contain U+0001 or U+0002 in a name or value"
            )

    def _row_error(self, row: int, text: str) -> SparkOptionError:
        return SparkOptionError(f"row {row} of partition {self._origin.partition} {text}")


def _encode_property(name: str, values: Any, filled: Bools) -> list[Any]:
    """Encode a property, empty for rows without a value."""
    parts = [_text(f"{name}\x01"), values, _text("\x02")]
    if filled.all():
        return parts
    return [pc.if_else(pa.array(filled), _join(*parts), _EMPTY)] if filled.any() else []


def _encode_map(properties: Any, filled: dict[str, Bools]) -> tuple[Any, Ints]:
    """Encode the map of each row, without reserved properties and those set by a column; return also the entries per row."""
    bounds = np.frombuffer(properties.buffers()[1], np.int32)[properties.offset : properties.offset + len(properties) + 1]
    names = properties.keys.slice(int(bounds[0]), int(bounds[-1] - bounds[0]))
    values = _bytes(properties.items.slice(int(bounds[0]), int(bounds[-1] - bounds[0])))
    bounds = (bounds - bounds[0]).astype(np.int64)
    owners = np.repeat(np.arange(len(properties)), np.diff(bounds))
    encoded = names.dictionary_encode()
    codes = encoded.indices.to_numpy(zero_copy_only=False)
    known = encoded.dictionary.to_pylist()
    kept = np.array([bool(name) and name not in NOT_COPIED for name in known], np.bool_)[codes]
    kept &= _lengths(values) > 0
    for code, name in enumerate(known):
        if name in filled:
            kept &= (codes != code) | ~filled[name][owners]
    if properties.null_count:
        kept &= properties.is_valid().to_numpy(zero_copy_only=False)[owners]
    if not kept.all():
        names, values = names.filter(pa.array(kept)), values.filter(pa.array(kept))
        bounds = np.append(0, np.cumsum(kept))[bounds]
    entries = _join(_bytes(names), _text("\x01"), values, _text("\x02"))
    if not len(entries):
        return pa.repeat(_EMPTY, len(properties)), np.diff(bounds)
    ends = np.frombuffer(entries.buffers()[1], np.int64)[bounds]
    return pa.Array.from_buffers(_BYTES, len(properties), [None, pa.py_buffer(ends), entries.buffers()[2]]), np.diff(bounds)


def _join(*parts: Any) -> Any:
    return pc.binary_join_element_wise(*parts, _EMPTY)


def _text(text: str) -> Any:
    return pa.scalar(text.encode(), _BYTES)


def _bytes(column: Any) -> Any:
    """Cast text or bytes to bytes, nulls to empty."""
    column = column.cast(_BYTES)
    return pc.fill_null(column, _EMPTY) if column.null_count else column


def _digits(numbers: Any) -> Any:
    return numbers.cast(pa.string()).cast(_BYTES)


def _nonzero_digits(column: Any) -> Any:
    """Format numbers as text; null and zero, which mean the same, become empty."""
    return _bytes(pc.if_else(pc.equal(column, 0), None, column).cast(pa.string()))


def _lengths(column: Any) -> Ints:
    bounds = np.frombuffer(column.buffers()[1], np.int64)[column.offset : column.offset + len(column) + 1]
    return np.diff(bounds)


def _as_binary(table: npt.NDArray[Any]) -> Any:
    """Wrap the elements of an array, as they are in memory, as a binary column."""
    size = table.dtype.itemsize
    bounds = np.arange(0, size * len(table) + 1, size, dtype=np.int64)
    return pa.Array.from_buffers(_BYTES, len(table), [None, pa.py_buffer(bounds), pa.py_buffer(table)])
