"""Rows as messages: the rows of an Arrow batch become the bytes of a batch send, all of them at once.

A row's properties are its id, what the columns and the map say, `__SPARK_ID` (which row it is) and, for brokers that store a
number once, producer and number. They stand last, where a broker finds them at a glance (`broker/numbered_batch.py`). All is put
together by Arrow, column by column: nothing is done for a single row, except to say what is wrong with it.
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
NOT_PASSED_ON: Final = (RESERVED | {SPARK_ID}) - {"TAGS", "KEYS"}
"""Properties of the old message that a new one does not have."""

_MAX_ROWS: Final = 1 << 32  # of a partition in a micro-batch
_FROM_COLUMNS: Final = {
    "KEYS": "keys", "TAGS": "tags", "__SHARDINGKEY": "shardingKey", "DELAY": "delayLevel", "TIMER_DELIVER_MS": "deliverTimeMs",
}  # fmt: skip
_DELAYS: Final = ("DELAY", "TIMER_DELIVER_MS")
_HEAD: Final = np.dtype([("total", ">i4"), ("magic_and_crc", ">i8"), ("flag", ">i4"), ("length", ">i4")])
_BYTES: Final = pa.large_binary()
_NOTHING: Final = pa.scalar(b"", _BYTES)


class Origin(NamedTuple):
    """Who writes, in the sense of the broker: a query (or job), one of its partitions, and the number of its micro-batch."""

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


def new_writer() -> str:
    return uuid.uuid4().hex


@dataclass(slots=True)
class Messages:
    """Messages as a batch send has them (`wire/batch.py`), one behind the other: `frames` is an Arrow array of them."""

    frames: Any
    delayed: Bools | None  # None: none of them
    body_bytes: int

    @property
    def data(self) -> memoryview:
        return memoryview(self.frames.buffers()[2])

    @property
    def bounds(self) -> Ints:
        """Message i is in the data from bounds[i] to bounds[i + 1]."""
        return np.frombuffer(self.frames.buffers()[1], np.int64)[: len(self.frames) + 1]

    def ordered(self, order: Ints) -> Messages:
        delayed = None if self.delayed is None else self.delayed[order]
        return Messages(self.frames.take(pa.array(order)), delayed, self.body_bytes)


class MessageBuilder:
    """Makes the messages of one task."""

    def __init__(self, shape: InputColumns, origin: Origin, *, numbered: bool) -> None:
        self._shape = shape
        self._origin = origin
        self._numbered = numbered
        self._next_id = message_ids.maker(message_ids.own_ip())

    def messages(self, rows: Any, first: int) -> Messages:
        """`first` is the place of the first row in its partition. SparkOptionError names the row that cannot be sent."""
        body = _bytes(self._shape.column(rows, "body"))
        lengths = _lengths(body)
        if len(lengths) and not lengths.min():
            raise self._wrong(first + int(lengths.argmin()), "has no body, which brokers refuse")
        blocks, delayed = self._properties(rows, first)
        sizes = _lengths(blocks)
        flag = self._shape.column(rows, "flag")
        heads = np.zeros(len(body), _HEAD)
        heads["total"] = batch.FIXED_BYTES + lengths + sizes
        heads["flag"] = 0 if flag is None else pc.fill_null(flag, 0).to_numpy(zero_copy_only=False)
        heads["length"] = lengths
        return Messages(_joined(_pieces(heads), body, _pieces(sizes.astype(">i2")), blocks), delayed, int(lengths.sum()))

    def _properties(self, rows: Any, first: int) -> tuple[Any, Bools | None]:
        count = rows.num_rows
        numbers = np.arange(first, first + count)
        filled: dict[str, Bools] = {}
        parts: list[Any] = []
        for name, column in _FROM_COLUMNS.items():
            values = self._shape.column(rows, column)
            if values is not None:
                values = _set_digits(values) if pa.types.is_integer(values.type) else _bytes(values)
                filled[name] = _lengths(values) > 0
                parts += _named(name, values, filled[name])
        counts = 3 + 2 * self._numbered + sum((one.astype(np.int64) for one in filled.values()), np.zeros(count, np.int64))
        properties = self._shape.column(rows, "properties")
        if properties is not None:
            given, entries = _given(properties, filled)
            parts.insert(0, given)
            counts += entries
        blocks = _joined(
            _text("UNIQ_KEY\x01"), self._unique_keys(count), _text("\x02WAIT\x01true\x02"), *parts,
            _text(f"{SPARK_ID}\x01"), self._spark_ids(rows, numbers), _text("\x02"), *self._producer(numbers),
        )  # fmt: skip
        self._check(blocks, counts, first)
        late = [filled[name] for name in _DELAYS if name in filled and filled[name].any()]
        return blocks, np.logical_or.reduce(late) if late else None

    def _unique_keys(self, count: int) -> Any:
        now_ms = wall_ms()
        return pa.array([self._next_id(now_ms).encode() for _ in range(count)], _BYTES)

    def _spark_ids(self, rows: Any, numbers: Ints) -> Any:
        made = _joined(_text(self._origin.spark_id("")), _digits(pa.array(numbers)))
        given = self._shape.column(rows, "idempotencyKey")
        if given is None:
            return made
        given = _bytes(given)
        return pc.if_else(pa.array(_lengths(given) > 0), given, made)

    def _producer(self, numbers: Ints) -> tuple[Any, ...]:
        if not self._numbered:
            return ()
        head = _text(f"__PRODUCER_ID\x01{self._origin.producer_id}\x02__PRODUCER_SEQ\x01")
        return head, _digits(pa.array(numbers + self._origin.number(0))), _text("\x02")

    def _check(self, blocks: Any, counts: Ints, first: int) -> None:
        """A separator in a name or value would make two properties of one, or another one of it."""
        sizes = _lengths(blocks)
        data = np.frombuffer(blocks.buffers()[2] or b"", np.uint8)
        wanted = int(counts.sum())
        if len(sizes) and (sizes.max() > MAX_BYTES or any(np.count_nonzero(data == mark) != wanted for mark in (1, 2))):
            found = [pc.count_substring(blocks, mark).to_numpy() for mark in (b"\x01", b"\x02")]
            bad = int(np.argmax((sizes > MAX_BYTES) | (found[0] != counts) | (found[1] != counts)))
            raise SparkOptionError(
                f"the properties of row {first + bad} of partition {self._origin.partition} take {sizes[bad]} bytes (at most "
                f"{MAX_BYTES}), or have a name or value with U+0001 or U+0002 in it"
            )

    def _wrong(self, row: int, text: str) -> SparkOptionError:
        return SparkOptionError(f"row {row} of partition {self._origin.partition} {text}")


def _named(name: str, values: Any, filled: Bools) -> list[Any]:
    """A property with a value for each row, nothing where there is none."""
    parts = [_text(f"{name}\x01"), values, _text("\x02")]
    if filled.all():
        return parts
    return [pc.if_else(pa.array(filled), _joined(*parts), _NOTHING)] if filled.any() else []


def _given(properties: Any, filled: dict[str, Bools]) -> tuple[Any, Ints]:
    """What the map of each row has, as text, and how many there are; without what belongs to the old message, or has a column."""
    bounds = np.frombuffer(properties.buffers()[1], np.int32)[properties.offset : properties.offset + len(properties) + 1]
    names = properties.keys.slice(int(bounds[0]), int(bounds[-1] - bounds[0]))
    values = _bytes(properties.items.slice(int(bounds[0]), int(bounds[-1] - bounds[0])))
    bounds = (bounds - bounds[0]).astype(np.int64)
    owners = np.repeat(np.arange(len(properties)), np.diff(bounds))
    encoded = names.dictionary_encode()
    codes = encoded.indices.to_numpy(zero_copy_only=False)
    known = encoded.dictionary.to_pylist()
    kept = np.array([bool(name) and name not in NOT_PASSED_ON for name in known], np.bool_)[codes]
    kept &= _lengths(values) > 0
    for code, name in enumerate(known):
        if name in filled:
            kept &= (codes != code) | ~filled[name][owners]
    if properties.null_count:
        kept &= properties.is_valid().to_numpy(zero_copy_only=False)[owners]
    if not kept.all():
        names, values = names.filter(pa.array(kept)), values.filter(pa.array(kept))
        bounds = np.append(0, np.cumsum(kept))[bounds]
    entries = _joined(_bytes(names), _text("\x01"), values, _text("\x02"))
    if not len(entries):
        return pa.repeat(_NOTHING, len(properties)), np.diff(bounds)
    ends = np.frombuffer(entries.buffers()[1], np.int64)[bounds]
    return pa.Array.from_buffers(_BYTES, len(properties), [None, pa.py_buffer(ends), entries.buffers()[2]]), np.diff(bounds)


def _joined(*parts: Any) -> Any:
    return pc.binary_join_element_wise(*parts, _NOTHING)


def _text(text: str) -> Any:
    return pa.scalar(text.encode(), _BYTES)


def _bytes(column: Any) -> Any:
    """Text or bytes as bytes, nothing where there is a null."""
    column = column.cast(_BYTES)
    return pc.fill_null(column, _NOTHING) if column.null_count else column


def _digits(numbers: Any) -> Any:
    return numbers.cast(pa.string()).cast(_BYTES)


def _set_digits(column: Any) -> Any:
    """Numbers as text, nothing for a null and for zero, which mean the same."""
    return _bytes(pc.if_else(pc.equal(column, 0), None, column).cast(pa.string()))


def _lengths(column: Any) -> Ints:
    bounds = np.frombuffer(column.buffers()[1], np.int64)[column.offset : column.offset + len(column) + 1]
    return np.diff(bounds)


def _pieces(table: npt.NDArray[Any]) -> Any:
    """The elements of an array as they lie in memory."""
    size = table.dtype.itemsize
    bounds = np.arange(0, size * len(table) + 1, size, dtype=np.int64)
    return pa.Array.from_buffers(_BYTES, len(table), [None, pa.py_buffer(bounds), pa.py_buffer(table)])
