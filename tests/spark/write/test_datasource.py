"""Writing through the data source, in a real Spark session."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from firearrow.admin.sync import Admin
from firearrow.testing import Cluster
from tests.spark.running import NO_FLOW_CONTROL, finish


@pytest.fixture
def strict_broker() -> Iterator[Any]:
    """A broker that does not create topics automatically."""
    properties = {**NO_FLOW_CONTROL, "autoCreateTopicEnable": "false"}
    with Cluster(1, sockets=True, clock=None, properties=properties) as cluster:
        yield cluster


def save(frame: Any, cluster: Any, **options: str) -> None:
    frame.write.format("rocketmq").options(nameServer=cluster.name_server, **options).mode("append").save()


def numbers(spark: Any, count: int, *columns: str) -> Any:
    return spark.range(count).selectExpr("cast(id AS string) AS body", *columns)


def writable_queues(cluster: Any, topic: str) -> set[tuple[str, int]]:
    with Admin(cluster.name_server) as admin:
        return {(status.broker, status.queue_id) for status in admin.topic_status(topic)}


def test_missing_topic_is_created_where_brokers_create_topics(spark: Any, brokers: Any) -> None:
    save(numbers(spark, 100), brokers, topic="New")

    assert Counter(message.body for message in brokers.messages("New")) == Counter({b"%d" % n: 1 for n in range(100)})
    assert writable_queues(brokers, "New") == {(name, number) for name in ("broker-a", "broker-b") for number in range(8)}


def test_created_topic_has_the_requested_number_of_queues(spark: Any, brokers: Any) -> None:
    save(numbers(spark, 10), brokers, topic="Three", queues="3")

    assert writable_queues(brokers, "Three") == {(name, number) for name in ("broker-a", "broker-b") for number in range(3)}


def test_topics_named_by_a_column_are_created(spark: Any, brokers: Any) -> None:
    save(numbers(spark, 40, "concat('ByColumn', id % 2) AS topic"), brokers)

    counts = [len(brokers.messages(topic)) for topic in ("ByColumn0", "ByColumn1")]
    assert counts == [20, 20]


def test_stream_creates_its_target(spark: Any, brokers: Any, tmp_path: Any) -> None:
    save(numbers(spark, 20), brokers, topic="Source")
    stream = spark.readStream.format("rocketmq").options(
        nameServer=brokers.name_server, subscribe="Source", startingOffsets="earliest"
    )
    writer = stream.load().writeStream.format("rocketmq").options(nameServer=brokers.name_server, topic="StreamTarget")

    query = writer.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
    finish(query)

    assert len(brokers.messages("StreamTarget")) == 20


def test_missing_topic_is_an_error_where_brokers_do_not_create_topics(spark: Any, strict_broker: Any) -> None:
    from pyspark.errors import AnalysisException

    with pytest.raises(AnalysisException, match="'Absent' does not exist and no broker creates topics automatically") as error:
        save(numbers(spark, 1), strict_broker, topic="Absent")
    assert "set the option createTopic to true" in str(error.value)

    save(numbers(spark, 5), strict_broker, topic="Absent", createTopic="true", queues="2")
    assert len(strict_broker.messages("Absent")) == 5


def test_invalid_options_fail_while_the_write_is_planned(spark: Any, brokers: Any, silent: str) -> None:
    from pyspark.errors import AnalysisException

    frame = spark.range(3).selectExpr("cast(id AS string) AS body")
    for options, expected in (
        ({"topic": "Nope", "createTopic": "false"}, "create it with `firearrow topic create Nope`"),
        ({"nameServer": silent, "topic": "Orders"}, "does not answer: check the option nameServer"),
        ({"topic": "Orders", "maxInFlight": "none"}, "option maxInFlight is 'none', expected a whole number above 0"),
        ({"topic": "Orders", "sendTimeout": "5"}, "unknown option 'sendtimeout'; did you mean sendTimeoutMs?"),
        ({}, "no target: give the option topic, or a column topic"),
    ):
        began = time.monotonic()
        with pytest.raises(AnalysisException) as error:
            frame.write.format("rocketmq").options(**{"nameServer": brokers.name_server, **options}).mode("append").save()
        assert expected in str(error.value)
        assert time.monotonic() - began < 30


def test_frame_is_written_once_per_write_id(spark: Any, brokers: Any) -> None:
    from pyspark.errors import AnalysisException

    brokers.create_topic("Written", 2)
    frame = spark.range(500).selectExpr("cast(id AS string) AS body", "'t' AS tags", "map('n', cast(id AS string)) AS properties")
    writer = frame.write.format("rocketmq").options(nameServer=brokers.name_server, topic="Written", writeId="job")

    for _ in range(2):
        writer.mode("append").save()

    messages = brokers.messages("Written")
    assert Counter(message.body for message in messages) == Counter({b"%d" % n: 1 for n in range(500)})
    assert all(message.properties["n"].encode() == message.body and message.tags == "t" for message in messages)
    with pytest.raises(AnalysisException, match="unknown column 'colour'"):
        frame.selectExpr("body", "1 AS colour").write.format("rocketmq").options(
            nameServer=brokers.name_server, topic="Written"
        ).mode("append").save()
