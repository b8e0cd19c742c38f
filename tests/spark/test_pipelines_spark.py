"""Jobs in a real Spark session: archives and copies on executors, and jobs that are queries."""

from __future__ import annotations

import random
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from firearrow import Message, ReceivedMessage, RetryLater
from tests.spark import needs
from tests.spark.running import finish, wait_for
from tests.spark.test_pipelines_local import KILLS, archived, bodies, fill, has_flags, kill_within, nothing_is_left_of, options

pytestmark = [
    pytest.mark.skipif(bool(needs.no_spark()), reason=needs.no_spark() or ""),
    pytest.mark.timeout(900),  # a busy machine starts a JVM in minutes; what times out in Spark breaks the session for the others
]


def side(brokers: Any, topic: str, archive: Path | None = None) -> Any:
    from firearrow.spark.pipelines.inputs import JobInput

    return JobInput(options(brokers, topic), None if archive is None else str(archive))


@pytest.mark.processes
def test_archive_of_a_killed_driver_is_completed_by_the_next_run(spark: Any, brokers: Any, tmp_path: Path) -> None:
    from firearrow.spark.pipelines.archive import archive, read_archive
    from firearrow.spark.pipelines.audit import audit
    from firearrow.spark.pipelines.engine import SparkEngine

    brokers.create_topic("Driven", 2)
    fill(brokers, "Driven", 3000 + 300 * KILLS)
    words = ["spark", "archive", "-n", brokers.name_server, "--topic", "Driven", "--out", str(tmp_path), "--master", "local[2]"]
    words += ["--max-offsets", "100", "-o", "json", "--conf", "spark.driver.memory=512m", "--conf", "spark.driver.host=127.0.0.1"]

    gone: list[int] = []
    for _ in range(KILLS):
        # Spark's own processes follow the killed driver.
        gone.append(kill_within([sys.executable, "-m", "firearrow", *words], increments=random.randint(1, 3), pause_s=0.1))
    done = archive(SparkEngine(spark), options(brokers, "Driven"), str(tmp_path))

    assert done.resumed
    assert 0 < done.rows < 3000 + 300 * KILLS
    frame = read_archive(spark, str(tmp_path))
    assert Counter(bytes(row.body) for row in frame.select("body").collect()) == bodies(brokers, "Driven")
    found = audit(spark, side(brokers, "Driven", tmp_path), side(brokers, "Driven"))
    assert (found.equal, found.rows_left, found.rows_right) == (True, 3000 + 300 * KILLS, 3000 + 300 * KILLS)
    for group in gone:
        nothing_is_left_of(group, 300)


def test_audit_and_dedupe_find_duplicates(spark: Any, brokers: Any, tmp_path: Path) -> None:
    from firearrow.spark.pipelines.audit import audit
    from firearrow.spark.pipelines.dedupe import dedupe
    from firearrow.spark.pipelines.engine import SparkEngine
    from firearrow.spark.pipelines.transfer import transfer

    for topic, queues in (("Source", 1), ("Twice", 2), ("Again", 2)):
        brokers.create_topic(topic, queues)
    fill(brokers, "Source", 300)
    engine, source = SparkEngine(spark), options(brokers, "Source")
    transfer(engine, source, "Twice", str(tmp_path / "one"))
    fill(brokers, "Source", 50, first=300)
    partial = audit(spark, side(brokers, "Source"), side(brokers, "Twice"), samples=3, out=str(tmp_path / "differences"))
    transfer(engine, source, "Twice", str(tmp_path / "two"))

    doubled = audit(spark, side(brokers, "Source"), side(brokers, "Twice"))
    done = dedupe(spark, side(brokers, "Twice"), key="origin", to_topic="Again", checkpoint=str(tmp_path / "three"))
    again = dedupe(spark, side(brokers, "Twice"), key="origin", to_topic="Again", checkpoint=str(tmp_path / "three"))
    kept = dedupe(spark, side(brokers, "Twice"), key="body", out=str(tmp_path / "kept"))

    assert (partial.missing_right, partial.missing_left, partial.doubled_right) == (50, 0, 0)
    assert len(partial.samples["missing_right"]) == 3
    assert spark.read.parquet(str(tmp_path / "differences")).count() == 50
    assert (doubled.missing_right, doubled.doubled_right, doubled.rows_right) == (0, 300, 650)
    assert done.totals is not None
    assert again.totals is not None
    assert (done.duplicates, done.totals.rows, again.totals.rows) == (300, 350, 0)
    assert bodies(brokers, "Again") == bodies(brokers, "Source")
    assert has_flags(brokers, "Again")
    assert (kept.duplicates, Counter(row["body"] for row in archived(tmp_path / "kept"))) == (300, bodies(brokers, "Source"))


def refuse(message: ReceivedMessage) -> None:
    raise RetryLater(-1)  # a dead letter at once


def test_matching_dead_letters_are_replayed_to_their_original_topic(spark: Any, brokers: Any, tmp_path: Path) -> None:
    from firearrow.spark.pipelines.engine import SparkEngine
    from firearrow.spark.pipelines.storage import StorageLocation
    from firearrow.spark.pipelines.transfer import replay, replay_source, select_where

    brokers.create_topic("Origin", 1)
    fill(brokers, "Origin", 20)
    with brokers.push_consumer(group="clumsy", subscribe={"Origin": "*"}, listener=refuse, start_from="earliest"):
        wait_for(lambda: len(brokers.dead_letters("clumsy")), 20, "dead letters")
    given = {"nameServer": brokers.name_server}
    source = replay_source(brokers.name_server, dead_letters_of="clumsy", options=given)
    chosen = select_where(spark, source, StorageLocation(str(tmp_path)), "tags = 'a'", given, None, "clumsy")

    done = replay(
        SparkEngine(spark), str(tmp_path), name_server=brokers.name_server, to_topic="origin", dead_letters_of="clumsy",
        selection=chosen,
    )  # fmt: skip

    assert done.rows == 10
    sent = bodies(brokers, "Origin")
    assert {int(body): count for body, count in sent.items()} == {n: 2 - n % 2 for n in range(20)}
    assert has_flags(brokers, "Origin")


def test_sql_over_topics_and_admin_tables(spark: Any, brokers: Any) -> None:
    from firearrow.spark.pipelines.sql import query

    brokers.create_topic("Asked-1", 2)
    fill(brokers, "Asked-1", 100)
    text = """SELECT t.tags, count(*) AS n, max(q.queues) AS queues FROM `Asked-1` t
              CROSS JOIN (SELECT count(*) AS queues FROM admin_queues WHERE topic = 'Asked-1') q GROUP BY t.tags"""

    rows = query(spark, text, {"nameServer": brokers.name_server}).collect()

    assert sorted((row.tags, row.n, row.queues) for row in rows) == [("a", 50, 4), ("b", 50, 4)]
    with pytest.raises(Exception, match="option table is 'lags'; did you mean lag?"):  # noqa: RUF043 (Spark's)
        spark.read.format("rocketmq_admin").options(nameServer=brokers.name_server, table="lags").load()


def test_trace_reports_latencies(spark: Any, brokers: Any) -> None:
    from firearrow.client.hooks import MessageKind
    from firearrow.client.trace import encoding
    from firearrow.spark.pipelines.trace import trace
    from firearrow.spark.reports.trace import trace_page
    from tests.spark.test_pipelines_pages import Page

    brokers.create_topic("Traced", 1)
    begin = 1_900_000_000_000
    told = []
    for n in range(100):
        name = f"ID{n:04}"
        told.append(encoding.encode(
            "Pub", time_ms=begin + n * 1000, region=None, group="makers", topic="Traced", msg_id=name, tags="t", keys=None,
            address="x", body_length=1, cost_ms=n, kind=MessageKind.NORMAL, offset_msg_id=None, success=n != 99,
        ))  # fmt: skip
        if n < 90:
            told.append(encoding.encode(
                "SubBefore", time_ms=begin + n * 1000 + n + 5, region=None, group="takers", request_id=f"R{n}", msg_id=name,
                retries=0, keys=None,
            ))  # fmt: skip
            told.append(encoding.encode(
                "SubAfter", time_ms=begin, group="takers", request_id=f"R{n}", msg_id=name, cost_ms=20, success=n != 0, keys=None,
                outcome=encoding.Outcome.SUCCESS,
            ))  # fmt: skip
    brokers.create_topic("RMQ_SYS_TRACE_TOPIC_2", 1)
    with brokers.producer() as producer:
        producer.send(Message("RMQ_SYS_TRACE_TOPIC_2", "".join(one.text for one in told).encode()))

    found = trace(spark, {"nameServer": brokers.name_server}, trace_topic="RMQ_SYS_TRACE_TOPIC_2")

    assert (found.sent, found.send_failed, found.consumed, found.consume_failed) == (100, 1, 89, 1)
    assert (found.never_consumed, found.lost[0]["msg_id"]) == (9, "ID0090")
    by_stage = {one["stage"]: one for one in found.stages}
    assert (by_stage["send"]["count"], by_stage["send"]["max"]) == (99, 98)
    assert [by_stage["wait"][name] for name in ("count", "p50", "max")] == [90, 5, 5]
    assert [by_stage["consume"][name] for name in ("count", "p99")] == [90, 20]
    assert by_stage["end_to_end"]["max"] == 89 + 5 + 20
    assert found.slowest[0]["msg_id"] == "ID0089"
    assert "ID0089" in Page(trace_page(found, "x")).text


def test_stream_progress_is_committed_as_a_group(spark: Any, brokers: Any, tmp_path: Path) -> None:
    import firearrow.spark
    from firearrow.admin.sync import Admin

    brokers.create_topic("Streamed", 2)
    fill(brokers, "Streamed", 60)
    listener = firearrow.spark.commit_progress(spark, brokers.name_server, "spark-stream", query="seen")
    try:
        query = (
            spark.readStream.format("rocketmq")
            .options(**options(brokers, "Streamed"), startingOffsets="earliest", maxOffsetsPerTrigger="40")
            .load()
            .writeStream.format("noop")
            .queryName("seen")
            .option("checkpointLocation", str(tmp_path))
            .trigger(availableNow=True)
            .start()
        )
        finish(query)
        wait_for(lambda: sum(listener.committed.values()), 60, "committed offsets")
    finally:
        listener.close()

    with Admin(brokers.name_server) as admin:
        queues = [one for one in admin.group_progress("spark-stream") if one.topic == "Streamed"]
    assert sum(one.consumer_offset for one in queues) == 60
    assert sum(one.lag for one in queues) == 0
