"""Batch reads through the data source in a real Spark session."""

from __future__ import annotations

import os
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from firearrow import Message
from tests.store.archives import manifest, unpack


def fill(brokers: Any, topic: str, count: int, first: int = 0) -> None:
    with brokers.producer(send_timeout=60) as producer:
        sent = [
            producer.send_nowait(Message(topic, f"body {n} é".encode(), tags="abc"[n % 3], properties={"n": str(n), "漢": "🙂"}))
            for n in range(first, first + count)
        ]
        for one in sent:
            one.result()


def reading(spark: Any, brokers: Any, topic: str, **options: str) -> Any:
    return spark.read.format("rocketmq").options(nameServer=brokers.name_server, subscribe=topic, **options)


def test_session_can_be_requested_again(spark: Any) -> None:
    import firearrow.spark

    assert firearrow.spark.session().sparkContext is spark.sparkContext


def test_topic_is_read_as_a_table(spark: Any, brokers: Any) -> None:
    brokers.create_topic("Orders", 2)
    fill(brokers, "Orders", 600)

    frame = reading(spark, brokers, "Orders").load()
    rows = frame.collect()

    messages = {message.msg_id: message for message in brokers.messages("Orders")}
    assert len(rows) == len(messages) == 600
    for row in rows:
        message = messages[row.msgId]
        assert (row.body, row.tags, row.queueOffset, row.queueId) == (
            message.body, message.tags, message.queue_offset, message.queue.queue_id,
        )  # fmt: skip
        assert row.properties["漢"] == "🙂"
        assert row.properties == message.all_properties
        assert row.brokerName == message.queue.broker_name
        assert int(row.storeTimestamp.timestamp() * 1000) == message.store_ms
    assert {row.tags: row["count"] for row in frame.groupBy("tags").count().collect()} == {"a": 200, "b": 200, "c": 200}


def test_custom_schema_selects_columns_and_the_broker_filters(spark: Any, brokers: Any) -> None:
    brokers.create_topic("Chosen", 1)
    fill(brokers, "Chosen", 30)

    text = (
        reading(spark, brokers, "Chosen", subExpression="b", minPartitions="3").schema("body string, queueoffset bigint").load()
    )
    few = reading(spark, brokers, "Chosen", columns="tags, commitLogOffset", propertiesAs="string").load()

    assert text.columns == ["body", "queueoffset"]
    assert sorted(row.body for row in text.collect()) == sorted(f"body {n} é" for n in range(1, 30, 3))
    assert few.columns == ["tags", "commitLogOffset"]
    assert few.where("tags = 'a'").count() == 10


def test_store_directory_is_a_sql_table_without_registration(spark: Any, tmp_path: Path) -> None:
    path = unpack("a-clean", tmp_path)
    spark = spark.newSession()
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW files USING rocketmq OPTIONS (path '{path}', maxSplitBytes '300k')")

    found = {row.topic: row.n for row in spark.sql("SELECT topic, count(*) AS n FROM files GROUP BY topic").collect()}

    wanted = Counter(message["topic"] for message in manifest("a-clean")["messages"])
    system = {topic for topic in wanted if topic.upper().startswith(("RMQ_SYS", "SCHEDULE_TOPIC", "TRANS_CHECK"))}
    assert found == {topic: count for topic, count in wanted.items() if topic not in system}


BAD_INPUT = [
    ({"maxOfsetsPerTrigger": "3"}, "unknown option 'maxofsetspertrigger'; did you mean maxOffsetsPerTrigger?"),
    ({"pullMaxBytes": "much"}, "option pullMaxBytes is 'much', expected a number of bytes"),
    ({"subscribe": "Nope"}, "the topic 'Nope' does not exist"),
    ({"nameServer": "127.0.0.1:1"}, "name server 127.0.0.1:1"),
    ({"nameServer": "SILENT", "pullTimeoutMs": "500"}, "name server 127.0.0.1:"),
    ({"startingOffsets": "{"}, "option startingOffsets is '{', expected a JSON object"),
    ({"startingOffsets": '{"Orders":{"broker-a":{"0":"x"}}}'}, "startingOffsets say 'x' for queue 0 of Orders on broker-a"),
    ({"startingOffsets": '{"Orders":{"broker-a":{"0":1}}}'}, "startingOffsets has no offset for queue"),
]


@pytest.mark.parametrize(("options", "expected"), BAD_INPUT)
@pytest.mark.parametrize("kind", ["batch", "stream"])
def test_invalid_options_fail_while_the_query_is_planned(
    spark: Any, brokers: Any, silent: str, tmp_path: Path, kind: str, options: dict[str, str], expected: str
) -> None:
    from pyspark.errors import AnalysisException, StreamingQueryException

    brokers.create_topic("Orders", 2)
    given = {"nameServer": brokers.name_server, "subscribe": "Orders", **options}
    given = {name: silent if value == "SILENT" else value for name, value in given.items()}
    began = time.monotonic()

    def ask() -> None:
        if kind == "batch":
            spark.read.format("rocketmq").options(**given).load().count()
        else:
            frame = spark.readStream.format("rocketmq").options(**given).load()
            frame.writeStream.format("noop").option("checkpointLocation", str(tmp_path)).start().awaitTermination(60)

    with pytest.raises((AnalysisException, StreamingQueryException)) as error:
        ask()

    assert expected in str(error.value)
    assert time.monotonic() - began < 30


def test_invalid_store_files_fail_while_the_query_is_planned(spark: Any, tmp_path: Path) -> None:
    from pyspark.errors import AnalysisException

    path = unpack("a-clean", tmp_path)
    segment = min((path / "commitlog").iterdir())

    def expected(**options: str) -> str:
        with pytest.raises(AnalysisException) as error:
            spark.read.format("rocketmq").options(**{"path": str(path), **options}).load().count()
        return str(error.value)

    assert "option path is '/no/such', which is not a directory" in expected(path="/no/such")
    assert "the topic 'Nope' is not in the store" in expected(subscribe="Nope")
    with segment.open("r+b") as file:
        file.write(b"no record")
    assert f"{segment} does not begin with a record" in expected()
    os.truncate(segment, 1000)
    assert "bytes, other files of this log have" in expected() or "does not begin with a record" in expected()


def test_pushed_filters_do_not_change_the_result(spark: Any, brokers: Any) -> None:
    brokers.create_topic("Pushed", 2)
    fill(brokers, "Pushed", 300)
    whole = reading(spark, brokers, "Pushed").load()
    moment = sorted(row.storeTimestamp for row in whole.select("storeTimestamp").collect())[150]

    for condition in (
        "tags = 'a'",
        "tags IN ('a', 'c') AND queueId = 1",
        "queueOffset >= 10 AND queueOffset < 20",
        "queueOffset = 12 AND brokerName = 'broker-b'",
        f"storeTimestamp >= timestamp'{moment}' AND tags = 'b'",
        f"storeTimestamp < timestamp'{moment}'",
        f"storeTimestamp = timestamp'{moment}'",
        "topic = 'Pushed' AND queueOffset > 5 AND length(body) > 3",
        "topic = 'Other'",
        "tags = 'a' OR queueId = 1",
        "tags = '*'",
        "tags IS NULL",
    ):
        frame = reading(spark, brokers, "Pushed", pushFilters="true").load().where(condition)
        assert sorted(row.msgId for row in frame.collect()) == sorted(row.msgId for row in whole.where(condition).collect())
