"""Conversion of rows into messages, compared with a row-by-row reference."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from firearrow.spark.errors import SparkOptionError
from firearrow.wire import batch, properties

TYPES = {
    "body": "binary", "keys": "string", "tags": "string", "shardingKey": "string", "idempotencyKey": "string",
    "properties": "map<string,string>", "delayLevel": "int", "deliverTimeMs": "bigint", "flag": "int",
}  # fmt: skip
NAMES = {
    "keys": "KEYS",
    "tags": "TAGS",
    "shardingKey": "__SHARDINGKEY",
    "delayLevel": "DELAY",
    "deliverTimeMs": "TIMER_DELIVER_MS",
}
OLD = ("UNIQ_KEY", "WAIT", "DELAY", "__PRODUCER_ID", "__SPARK_ID", "MSG_REGION")  # belong to the message that was read


def arrow(rows: list[dict[str, Any]], columns: tuple[str, ...]) -> Any:
    import pyarrow as pa

    from firearrow.spark.decode.columns import ARROW_TYPES

    arrays = [pa.array([row.get(name) for row in rows], ARROW_TYPES[TYPES[name]]) for name in columns]
    return pa.RecordBatch.from_arrays(arrays, names=list(columns))


def made(rows: Any, first: int = 0, *, numbered: bool = True, batch_id: int = 3) -> Any:
    from firearrow.spark.write.input_columns import match_columns
    from firearrow.spark.write.message_builder import MessageBuilder, Origin

    shape = match_columns([(name, TYPES[name]) for name in rows.schema.names], "T")
    return MessageBuilder(shape, Origin("w", batch_id, 5), numbered=numbered).messages(rows, first)


def sent(messages: Any) -> list[tuple[int, bytes, dict[str, str]]]:
    return [(flag, body, properties.parse(raw)) for flag, body, raw in batch.split(bytes(messages.data))]


def wanted(row: dict[str, Any], number: int) -> tuple[int, bytes, dict[str, str]]:
    own = {name: value for name, value in row.get("properties") or () if name and value and name not in OLD}
    own |= {name: str(row[column]) for column, name in NAMES.items() if row.get(column)}
    own |= {"WAIT": "true", "__SPARK_ID": row.get("idempotencyKey") or f"w/3/5/{number}"}
    own |= {"__PRODUCER_ID": "w/5", "__PRODUCER_SEQ": str((3 << 32) + number)}
    return row.get("flag") or 0, row["body"], own


text = st.one_of(st.none(), st.text("aé ☃\x03", max_size=4))
maps = st.dictionaries(st.sampled_from(["KEYS", "TAGS", "a", "größe", "", *OLD]), text, max_size=5).map(dict.items).map(list)
rows_of = st.fixed_dictionaries(
    {"body": st.binary(min_size=1, max_size=5)},
    optional={
        "keys": text,
        "tags": text,
        "shardingKey": text,
        "idempotencyKey": text,
        "delayLevel": st.one_of(st.none(), st.integers(0, 18)),
        "deliverTimeMs": st.one_of(st.none(), st.integers(0, 2**40)),
        "flag": st.one_of(st.none(), st.integers(-(2**31), 2**31 - 1)),
        "properties": st.one_of(st.none(), maps),
    },
)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(rows_of, min_size=1, max_size=6), st.sets(st.sampled_from(sorted(TYPES))), st.integers(0, 2), st.integers(0, 2**20)
)
def test_batch_conversion_equals_row_by_row_conversion(rows: list[dict[str, Any]], names: set[str], cut: int, first: int) -> None:
    columns = ("body", *sorted(names - {"body"}))
    rows = [{name: value for name, value in row.items() if name in columns} for row in rows]
    messages = made(arrow(rows, columns).slice(min(cut, len(rows) - 1)), first)  # a slice has its columns from the middle on
    rows = rows[min(cut, len(rows) - 1) :]

    found = sent(messages)

    keys = [block.pop("UNIQ_KEY") for _, _, block in found]
    assert found == [wanted(row, first + place) for place, row in enumerate(rows)]
    assert len(set(keys)) == len(rows)
    assert messages.body_bytes == sum(len(row["body"]) for row in rows)
    delayed = [bool(row.get("delayLevel") or row.get("deliverTimeMs")) for row in rows]
    assert (messages.delayed.tolist() if messages.delayed is not None else [False] * len(rows)) == delayed


def test_sequence_number_is_the_last_property() -> None:
    from firearrow.broker.dedup.dedup import rising_numbers

    rows = [{"body": b"x", "keys": "k", "properties": [("TAGS", "t")], "delayLevel": n % 2} for n in range(300)]
    found = rising_numbers(bytes(made(arrow(rows, ("body", "keys", "properties", "delayLevel"))).data))

    assert found is not None
    assert found[:2] == ("w/5", list(range(3 << 32, (3 << 32) + 300)))


def test_messages_without_sequence_numbers() -> None:
    (message,) = sent(made(arrow([{"body": b"x"}], ("body",)), numbered=False))
    assert set(message[2]) == {"UNIQ_KEY", "WAIT", "__SPARK_ID"}


@pytest.mark.parametrize(
    "row",
    [
        {"keys": "a\x01b"},
        {"tags": "a\x02b"},
        {"shardingKey": "\x01"},
        {"idempotencyKey": "\x02"},
        {"properties": [("a", "b\x01c")]},
        {"properties": [("a\x02", "b")]},
        {"properties": [("a", "b" * 32_767)]},
        {"tags": "t" * 40_000},
    ],
)
def test_invalid_properties_are_reported_with_their_row(row: dict[str, Any]) -> None:
    rows = [{"body": b"x", **(row if place == 2 else {})} for place in range(4)]
    with pytest.raises(SparkOptionError, match="the properties of row 102 of partition 5 have"):
        made(arrow(rows, ("body", *row)), 100)


def test_large_string_columns_are_accepted() -> None:
    import pyarrow as pa

    wide = {"body": pa.array(["é"], pa.large_string()), "keys": pa.array(["k"], pa.large_string())}
    (message,) = sent(made(pa.RecordBatch.from_pydict(wide)))
    assert (message[1], message[2]["KEYS"]) == ("é".encode(), "k")
