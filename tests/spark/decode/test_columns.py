from __future__ import annotations

import zlib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from firearrow.client.compression import MAX_INFLATED
from firearrow.client.errors import DecompressionError
from firearrow.spark.errors import SparkOptionError
from firearrow.wire.message_ids import host_bytes
from firearrow.wire.record import BORN_HOST_V6, COMPRESSED, STORE_HOST_V6, Record, encode
from tests.spark.plain import row

V4, V6 = host_bytes("10.1.2.3", 10911), host_bytes("2001:db8::7", 10911)


def rows(records: list[Record], names: list[str] | None = None, **how: Any) -> list[dict[str, Any]]:
    from firearrow.spark.decode.columns import record_batch, select_columns
    from firearrow.spark.decode.records import find_records

    buffer = b"".join(map(encode, records))
    found = find_records(buffer)
    assert found.end == len(buffer)
    batch = record_batch(found.records, select_columns(names), broker_name="broker-a", **how)
    batch.validate(full=True)
    made: list[dict[str, Any]] = batch.to_pylist()
    return made


def text(least: int = 0) -> st.SearchStrategy[str]:
    return st.text(st.sampled_from("ab\x01\x02 é漢🙂"), min_size=least, max_size=6)


@st.composite
def any_record(draw: st.DrawFn) -> Record:
    born, store = draw(st.booleans()), draw(st.booleans())
    body = draw(st.binary(max_size=20))
    flag = (BORN_HOST_V6 if born else 0) | (STORE_HOST_V6 if store else 0)
    if draw(st.booleans()):
        body, flag = zlib.compress(body), flag | COMPRESSED
    names = st.sampled_from(["TAGS", "KEYS", "UNIQ_KEY", "a", "TAGSX", ""])
    segments = draw(st.lists(st.one_of(text(), st.tuples(names, text()).map("\x01".join)), max_size=5))
    version = draw(st.sampled_from([1, 2]))
    return Record(
        topic="T" if version == 1 else draw(st.sampled_from(["A", "%RETRY%" + "g" * 150])),
        body=body,
        properties="\x02".join(segments).encode() + draw(st.sampled_from([b"", b"\x02", b"\xff\x02"])),
        queue_id=draw(st.integers(0, 7)),
        flag=draw(st.integers(-(2**31), 2**31 - 1)),
        queue_offset=draw(st.integers(0, 2**62)),
        physical_offset=draw(st.integers(0, 2**62)),
        sys_flag=flag,
        born_timestamp=draw(st.integers(0, 2**41)),
        born_host=V6 if born else V4,
        store_timestamp=draw(st.integers(0, 2**41)),
        store_host=V6 if store else V4,
        reconsume_times=draw(st.integers(0, 16)),
        prepared_transaction_offset=draw(st.integers(0, 2**62)),
        version=version,
    )  # fmt: skip


@given(st.lists(any_record(), min_size=1, max_size=8))
@settings(max_examples=80, deadline=None)
def test_columns_equal_those_decoded_record_by_record(records: list[Record]) -> None:
    made = rows(records)

    expected = [row(record, "broker-a") for record in records]
    for one in (*made, *expected):
        one["properties"] = sorted(one["properties"])
    assert made == expected


def test_no_records_yield_no_rows() -> None:
    assert rows([]) == []


def test_only_requested_columns_are_decoded() -> None:
    record = Record("T", b"x", b"TAGS\x01t\x02", queue_offset=7)

    assert rows([record], ["TAGS", "queueoffset"]) == [{"tags": "t", "queueOffset": 7}]


def test_bodies_stay_compressed_without_decompress() -> None:
    packed = zlib.compress(b"hello")

    assert rows([Record("T", packed, sys_flag=COMPRESSED)], ["body"], decompress=False) == [{"body": packed}]


def test_bodies_of_a_batch_are_decompressed_up_to_a_common_limit() -> None:
    bomb = Record("T", zlib.compress(bytes(MAX_INFLATED // 2)), sys_flag=COMPRESSED)

    with pytest.raises(DecompressionError, match="bodies of one response become larger than"):
        rows([bomb] * 8, ["body"])


def test_last_property_of_a_name_wins_among_many_names() -> None:
    block = b"".join(b"n%d\x01v%d\x02" % (number % 70, number) for number in range(140))

    assert rows([Record("T", b"", block)], ["properties"]) == [{"properties": [(f"n{n}", f"v{n + 70}") for n in range(70)]}]


def test_custom_schema_types() -> None:
    from firearrow.spark.decode.columns import columns_of_schema, record_batch
    from firearrow.spark.decode.records import find_records

    columns = columns_of_schema([("Body", "string"), ("properties", "string")])
    buffer = b"".join(encode(Record("T", body, b"a\x01b\x02")) for body in ("né".encode(), b"\xff"))
    batch = record_batch(find_records(buffer).records, columns, broker_name=None)

    assert batch.to_pylist() == [{"Body": "né", "properties": "a\x01b\x02"}, {"Body": "\ufffd", "properties": "a\x01b\x02"}]
    with pytest.raises(SparkOptionError, match="column queueId of the schema has type string, expected int"):
        columns_of_schema([("queueId", "string")])
    with pytest.raises(SparkOptionError, match="unknown column 'tag'; did you mean tags"):
        columns_of_schema([("tag", "string")])


@given(
    st.lists(
        st.sampled_from(["a", "region", "eight678", "nine-9-bytes", "nine-X-bytes", "sixteen-bytes-16", "longer-than-two-words"])
    ),
    st.integers(1, 5),
    st.data(),
)
@settings(max_examples=80, deadline=None)
def test_properties_of_nearly_uniform_messages(names: list[str], count: int, data: st.DataObject) -> None:
    layouts = [list(names) for _ in range(count)]
    layouts.insert(data.draw(st.integers(0, count)), data.draw(st.permutations(names)))
    records = [
        Record("Orders", b"x", "".join(f"{name}\x01{data.draw(st.sampled_from('vé'))}\x02" for name in layout).encode())
        for layout in layouts
    ]

    made = rows(records, ["topic", "properties", "keys"])

    expected = [row(record, None) for record in records]
    assert [sorted(one["properties"]) for one in made] == [sorted(one["properties"]) for one in expected]


@pytest.mark.parametrize(
    "topics", [["T", "T"], ["Orders", "Orderz"], ["T-of-eight", "T-of-eighu"], ["a" * 17, "a" * 16 + "b"], ["é", "é"]]
)
def test_similar_topics_are_distinguished(topics: list[str]) -> None:
    for chosen in ([topics[0]] * 3, topics, [*topics, topics[0]]):
        assert [one["topic"] for one in rows([Record(topic, b"x") for topic in chosen], ["topic"])] == chosen
