"""Streams in a real Spark session: micro-batches, restarts, new queues, deduplication."""

from __future__ import annotations

import os
from collections import Counter
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from firearrow import Message
from tests.cli.process import call
from tests.spark.read.test_datasource import fill
from tests.spark.running import Server, create_topic, finish, read_queues, wait_for
from tests.spark.running import bodies as bodies_of


def stream(spark: Any, brokers: Any, topic: str, **options: str) -> Any:
    given = {"nameServer": brokers.name_server, "subscribe": topic, "startingOffsets": "earliest", "metadataRefreshMs": "0"}
    return spark.readStream.format("rocketmq").options(**given, **options).load()


def run(frame: Any, tmp_path: Path, brokers: Any, target: str) -> Any:
    query = (
        frame.writeStream.format("rocketmq")
        .options(nameServer=brokers.name_server, topic=target, checkpointLocation=str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    finish(query)
    return query


def grow(brokers: Any, topic: str, queues: int) -> None:
    for broker in brokers.brokers:
        create_topic(broker.address, brokers.name_server, topic, queues)
    wait_for(lambda: read_queues(brokers.name_server, topic), [queues] * len(brokers.brokers), f"the route of {topic}")


def bodies(brokers: Any, topic: str) -> Counter[bytes]:
    return Counter(message.body for message in brokers.messages(topic))


def test_stream_resumes_and_finds_new_queues(spark: Any, brokers: Any, tmp_path: Path) -> None:
    brokers.create_topic("In", 1)
    brokers.create_topic("Out", 2)
    fill(brokers, "In", 500)
    frame = stream(spark, brokers, "In", maxOffsetsPerTrigger="300")

    first = run(frame, tmp_path, brokers, "Out")
    grow(brokers, "In", 3)
    with brokers.producer(instance_name="second", send_timeout=60) as producer:  # one that does not know the topic as it was
        for n in range(500, 800):
            producer.send(Message("In", b"%d" % n))
    second = run(frame, tmp_path, brokers, "Out")

    assert bodies(brokers, "Out") == bodies(brokers, "In")
    assert {message.queue.queue_id for message in brokers.messages("In")} == {0, 1, 2}
    assert sum(bodies(brokers, "Out").values()) == 800
    assert [progress.numInputRows for progress in first.recentProgress if progress.numInputRows] == [300, 200]
    assert sum(progress.numInputRows for progress in second.recentProgress) == 300


def test_partially_failed_batch_is_stored_once(spark: Any, brokers: Any, tmp_path: Path) -> None:
    from pyspark.errors import StreamingQueryException
    from pyspark.sql.functions import udf

    brokers.create_topic("Fails", 1)
    brokers.create_topic("Once", 1)
    fill(brokers, "Fails", 1500)
    mark = tmp_path / "failed"

    @udf(returnType="binary", useArrow=False)
    def fails_once(body: bytes, offset: int, broker_name: str) -> bytes:
        # In the last of four tasks, of which two run at a time: the others have stored their rows by then.
        if offset == 740 and broker_name == "broker-b" and not mark.exists():
            mark.touch()
            raise RuntimeError("the first time")
        return body

    frame = stream(spark, brokers, "Fails", maxRecordsPerPartition="500")
    frame = frame.select(fails_once("body", "queueOffset", "brokerName").alias("body"))

    with pytest.raises(StreamingQueryException, match="the first time"):
        run(frame, tmp_path, brokers, "Once")
    stored_at_first = sum(bodies(brokers, "Once").values())
    run(frame, tmp_path, brokers, "Once")

    assert mark.exists()
    assert bodies(brokers, "Once") == bodies(brokers, "Fails")
    assert 0 < stored_at_first < 1500


def test_data_loss_fails_a_stream_with_the_exact_range(spark: Any, brokers: Any, tmp_path: Path) -> None:
    from pyspark.errors import StreamingQueryException

    brokers.create_topic("Lost", 1)
    brokers.create_topic("Rest", 1)
    offsets = '{"Lost":{"broker-a":{"0":50},"broker-b":{"0":0}}}'
    given = {"nameServer": brokers.name_server, "subscribe": "Lost", "startingOffsets": offsets}
    frame = spark.readStream.format("rocketmq").options(**given).load().select("body")

    with pytest.raises(StreamingQueryException) as error:
        run(frame, tmp_path, brokers, "Rest")

    assert "data loss: queue 0 of Lost on broker-a ends at 0, but offsets up to 49 were read" in str(error.value)


def test_stream_commits_its_progress(spark: Any, brokers: Any, tmp_path: Path) -> None:
    from firearrow.spark.cluster import cluster_client
    from firearrow.spark.options import read_options

    brokers.create_topic("Reported", 2)
    brokers.create_topic("Sunk", 1)
    fill(brokers, "Reported", 400)
    options = read_options({"nameServer": brokers.name_server, "subscribe": "Reported"})
    servers = cluster_client(options.client())
    queues = servers.queues(["Reported"])

    run(stream(spark, brokers, "Reported", maxOffsetsPerTrigger="150"), tmp_path / "none", brokers, "Sunk")
    assert servers.committed("watchers", queues) == {}
    frame = stream(spark, brokers, "Reported", maxOffsetsPerTrigger="150", consumerGroup="watchers", commitOffsets="progress")
    run(frame, tmp_path, brokers, "Sunk")

    assert servers.committed("watchers", queues) == servers.max_offsets(queues)
    assert sum(servers.max_offsets(queues).values()) == 400


def test_stream_reads_queues_added_while_it_runs(spark: Any, brokers: Any, tmp_path: Path) -> None:
    brokers.create_topic("Grows", 1)
    brokers.create_topic("Grown", 2)
    fill(brokers, "Grows", 200)
    query = (
        stream(spark, brokers, "Grows")
        .writeStream.format("rocketmq")
        .options(nameServer=brokers.name_server, topic="Grown", checkpointLocation=str(tmp_path / "checkpoint"))
        .start()
    )
    try:
        wait_for(lambda: sum(bodies(brokers, "Grown").values()), 200, "what was there")
        grow(brokers, "Grows", 4)
        with brokers.producer(instance_name="later", send_timeout=60) as producer:  # one that does not know the topic as it was
            for n in range(200, 600):
                producer.send(Message("Grows", b"%d" % n))
        wait_for(lambda: sum(bodies(brokers, "Grown").values()) >= 600, True, "what came later, most of it in new queues")
    finally:
        query.stop()

    assert bodies(brokers, "Grown") == bodies(brokers, "Grows")
    assert {message.queue.queue_id for message in brokers.messages("Grows")} == {0, 1, 2, 3}


def test_stream_reports_messages_deleted_by_retention(spark: Any, tmp_path: Path) -> None:
    from pyspark.errors import StreamingQueryException

    # Only the request of the test deletes files: at other hours the broker does not.
    other_hour = (datetime.now().hour + 12) % 24
    server = Server(tmp_path / "server", "mappedFileSizeCommitLog=1048576", "fileReservedTime=0", f"deleteWhen={other_hour:02}")
    try:
        for topic in ("Old", "Left"):
            server.create_topic(topic, 1)
        server.send("Old", [b"%04d" % n for n in range(100)])
        given = {"nameServer": server.name_server, "subscribe": "Old", "startingOffsets": "earliest"}

        def go_on(**more: str) -> None:
            frame = spark.readStream.format("rocketmq").options(**given, **more).load().select("body")
            run(frame, tmp_path, server, "Left")

        go_on()
        server.send("Old", [b"%04d" % n + os.urandom(10_000) for n in range(100, 500)])
        oldest = delete_oldest(server)
        with pytest.raises(StreamingQueryException) as error:
            go_on()
        go_on(failOnDataLoss="false")
        found = bodies_of(server.name_server, "Left")
    finally:
        server.stop()

    lost = f"data loss: offsets 100 to {oldest - 1} of queue 0 of Old on broker-a no longer exist"
    assert f"{lost} (it has {oldest} to 499 now)" in str(error.value)
    # What had been copied first went with the same files.
    assert Counter(number for body in found if (number := int(body[:4])) >= 100) == Counter(range(oldest, 500))


def delete_oldest(server: Server) -> int:
    """Delete expired files; return the oldest remaining offset of the topic Old."""
    from firearrow.spark.cluster import cluster_client
    from firearrow.spark.options import read_options

    servers = cluster_client(read_options({"nameServer": server.name_server, "subscribe": "Old"}).client())
    queues = servers.queues(["Old"])

    def oldest() -> int:
        return servers.min_offsets(queues)[queues[0]]

    wait_for(lambda: call(server.broker, 329).code == 0 and oldest() > 100, True, "the oldest files to be deleted")
    return oldest()
