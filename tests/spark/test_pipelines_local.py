"""Jobs without Spark: archives, transfers and replays in local processes, interrupted and run again."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest

from firearrow import Message
from tests.spark import needs

pytestmark = needs.arrow

KILLS = int(os.environ.get("FIREARROW_SPARK_KILLS", "1"))


def fill(brokers: Any, topic: str, count: int, first: int = 0) -> None:
    """Send messages with seven keys; body and flag are the number of the message."""
    with brokers.producer() as producer:
        for key in range(7):
            numbers = [n for n in range(first, first + count) if n % 7 == key]
            made = [Message(topic, f"{n}".encode(), tags="ab"[n % 2], keys=[f"k{key}"], flag=n) for n in numbers]
            if made:
                producer.send_batch(made, sharding_key=f"k{key}", timeout=60)


def options(brokers: Any, topic: str, **more: str) -> dict[str, str]:
    return {"nameServer": brokers.name_server, "subscribe": topic, **more}


def engine() -> Any:
    from firearrow.spark.pipelines.engine import LocalEngine

    return LocalEngine(1)


def archived(path: Path) -> list[dict[str, Any]]:
    import pyarrow.dataset as ds

    table = ds.dataset(str(path), format="parquet", partitioning="hive").to_table()
    rows: list[dict[str, Any]] = table.to_pylist()
    return rows


def bodies(brokers: Any, topic: str) -> Counter[bytes]:
    return Counter(message.body for message in brokers.messages(topic))


def has_flags(brokers: Any, topic: str) -> bool:
    """Return True if every message is as sent by `fill`."""
    return all(message.flag == int(message.body) for message in brokers.messages(topic))


class Breaks:
    """An engine that completes the work of an increment and then fails, like a driver that dies before it records the result."""

    name, parallelism = "breaks", 1

    def __init__(self, at: int) -> None:
        self.left = at

    def run(self, items: Any, work: Any) -> Any:
        done = [work(item) for item in items]
        self.left -= 1
        if self.left == 0:
            raise RuntimeError("broken")
        return done

    def close(self) -> None:
        pass


def test_archive_has_every_message_once_and_resumes(brokers: Any, tmp_path: Path) -> None:
    from firearrow.spark.pipelines.archive import archive

    brokers.create_topic("Kept", 2)
    fill(brokers, "Kept", 2000)
    events: list[dict[str, Any]] = []

    first = archive(engine(), options(brokers, "Kept"), str(tmp_path), max_offsets=900, report=events.append)
    fill(brokers, "Kept", 300, first=2000)
    second = archive(engine(), options(brokers, "Kept"), str(tmp_path))

    rows = archived(tmp_path)
    assert (first.rows, second.rows, len(rows)) == (2000, 300, 2300)
    assert [event["rows"] for event in events if not 890 <= event["rows"] <= 900] == [events[-1]["rows"]]
    assert events[-1]["done"] == events[-1]["total"] == 2000
    wanted = {(m.queue.broker_name, m.queue.queue_id, m.queue_offset): m for m in brokers.messages("Kept")}
    for row in rows:
        message = wanted.pop((row["brokerName"], row["queueId"], row["queueOffset"]))
        assert (row["body"], row["tags"], row["keys"], row["msgId"], dict(row["properties"])) == (
            message.body, message.tags, message.keys[0], message.msg_id, message.all_properties,
        )  # fmt: skip
        assert row["topic"] == "Kept"
        assert row["day"] == f"{row['storeTimestamp']:%Y-%m-%d}"
    assert wanted == {}


def test_unfinished_increment_leaves_no_duplicates(brokers: Any, tmp_path: Path) -> None:
    from firearrow.spark.pipelines.archive import archive
    from firearrow.spark.pipelines.transfer import transfer

    brokers.create_topic("Torn", 2)
    brokers.create_topic("TornCopy", 3)
    fill(brokers, "Torn", 1200)
    out, checkpoint = str(tmp_path / "archive"), str(tmp_path / "checkpoint")

    with pytest.raises(RuntimeError, match="broken"):
        archive(Breaks(2), options(brokers, "Torn"), out, max_offsets=500)
    assert 490 <= len(archived(tmp_path / "archive")) <= 500
    archive(engine(), options(brokers, "Torn"), out, max_offsets=700)
    with pytest.raises(RuntimeError, match="broken"):
        transfer(Breaks(2), options(brokers, "Torn"), "TornCopy", checkpoint, max_offsets=500)
    assert 980 <= sum(bodies(brokers, "TornCopy").values()) <= 1000
    transfer(engine(), options(brokers, "Torn"), "TornCopy", checkpoint, max_offsets=700)

    assert Counter(row["body"] for row in archived(tmp_path / "archive")) == bodies(brokers, "Torn")
    assert bodies(brokers, "TornCopy") == bodies(brokers, "Torn")


@pytest.mark.parametrize("job", ["archive", "transfer"])
def test_killed_job_that_is_run_again_has_every_message_once(brokers: Any, tmp_path: Path, job: str) -> None:
    topic, copy = f"Killed-{job}", f"Killed-{job}-copy"
    brokers.create_topic(topic, 2)
    brokers.create_topic(copy, 4)
    fill(brokers, topic, 4000 + 600 * KILLS)
    words = ["-n", brokers.name_server, "--topic", topic, "--engine", "local", "-o", "json", "--max-offsets"]
    target = ["--out", str(tmp_path / "out")] if job == "archive" else ["--to-topic", copy, "--checkpoint", str(tmp_path / "out")]
    command = [sys.executable, "-m", "firearrow", "spark", job, *target, *words]

    gone: list[int] = []
    for _ in range(KILLS):
        gone.append(kill_within([*command, "100"], increments=random.randint(1, 4), pause_s=0.02))
    finished = subprocess.run([*command, "5000"], stdout=subprocess.PIPE, timeout=240, check=True)

    assert json.loads(finished.stdout.splitlines()[-1])["resumed"] is True
    if job == "archive":
        assert Counter(row["body"] for row in archived(tmp_path / "out")) == bodies(brokers, topic)
    else:
        assert bodies(brokers, copy) == bodies(brokers, topic)
    for group in gone:
        nothing_is_left_of(group)


def kill_within(command: list[str], increments: int, pause_s: float) -> int:
    """Kill the driver of a job at a random moment after some increments; return its process group.

    The job stops at a small pipe that is not read, so that it cannot end before the kill however late this process continues.
    """
    process = subprocess.Popen(command, stdout=subprocess.PIPE, bufsize=0, pipesize=4096, start_new_session=True)
    assert process.stdout is not None
    try:
        for _ in range(increments):
            assert json.loads(process.stdout.readline())["event"] == "increment"
        time.sleep(random.random() * pause_s)
    finally:
        process.kill()  # only the driver
        process.stdout.close()
        status = process.wait()
    assert status == -signal.SIGKILL
    return process.pid


def nothing_is_left_of(group: int, seconds: float = 200) -> None:
    """Wait until the processes started by an ended driver have ended."""
    deadline = time.monotonic() + seconds
    try:
        while True:
            os.killpg(group, 0)
            assert time.monotonic() < deadline, "processes of a killed driver are still there"
            time.sleep(0.05)
    except ProcessLookupError:
        return


def test_transfer_keeps_the_order_by_key_and_the_rate(brokers: Any, tmp_path: Path) -> None:
    from firearrow.spark.pipelines.transfer import transfer

    brokers.create_topic("Narrow", 1)
    brokers.create_topic("Wide", 6)
    fill(brokers, "Narrow", 600)

    done = transfer(engine(), options(brokers, "Narrow"), "Wide", str(tmp_path), rate=400)

    by_key: dict[str, set[Any]] = defaultdict(set)
    order: dict[str, list[int]] = defaultdict(list)
    for message in sorted(brokers.messages("Wide"), key=lambda one: one.queue_offset):
        by_key[message.keys[0]].add(message.queue)
        order[message.keys[0]].append(int(message.body))
    assert bodies(brokers, "Wide") == bodies(brokers, "Narrow")
    assert has_flags(brokers, "Wide")
    assert all(len(queues) == 1 for queues in by_key.values())
    assert all(numbers == sorted(numbers) for numbers in order.values())
    assert done.increments >= 2
    assert done.seconds >= 1.4


def test_replayed_archive_keeps_the_origin_of_messages(brokers: Any, tmp_path: Path) -> None:
    from firearrow.spark.pipelines.archive import archive
    from firearrow.spark.pipelines.transfer import replay

    brokers.create_topic("Before", 2)
    brokers.create_topic("After", 2)
    fill(brokers, "Before", 700)
    archive(engine(), options(brokers, "Before"), str(tmp_path / "archive"), max_offsets=300)

    again = {"name_server": brokers.name_server, "to_topic": "After", "archive": str(tmp_path / "archive")}
    first = replay(engine(), str(tmp_path / "checkpoint"), **again)
    second = replay(engine(), str(tmp_path / "checkpoint"), **again)

    assert (first.rows, second.rows) == (700, 0)
    assert bodies(brokers, "After") == bodies(brokers, "Before")
    assert has_flags(brokers, "After")
    source = {message.body: message for message in brokers.messages("Before")}
    order: dict[str, list[int]] = defaultdict(list)
    for message in sorted(brokers.messages("After"), key=lambda one: one.queue_offset):
        was = source[message.body]
        place = f"Before/{was.queue.broker_name}/{was.queue.queue_id}/{was.queue_offset}"
        assert message.properties["__SPARK_ID"] == place
        order[message.keys[0]].append(int(message.body))
    assert all(numbers == sorted(numbers) for numbers in order.values())


def test_archive_of_selected_columns_is_replayed_without_flags(brokers: Any, tmp_path: Path) -> None:
    from firearrow.spark.pipelines.archive import archive
    from firearrow.spark.pipelines.transfer import replay

    brokers.create_topic("Chosen", 1)
    brokers.create_topic("ChosenAgain", 1)
    fill(brokers, "Chosen", 20)
    archive(engine(), options(brokers, "Chosen", columns="body,keys,tags,properties"), str(tmp_path / "archive"))

    again = {"name_server": brokers.name_server, "to_topic": "ChosenAgain", "archive": str(tmp_path / "archive")}
    replay(engine(), str(tmp_path / "checkpoint"), **again)

    assert bodies(brokers, "ChosenAgain") == bodies(brokers, "Chosen")
    assert {message.flag for message in brokers.messages("ChosenAgain")} == {0}


def test_store_directory_is_archived_up_to_its_flushed_offset(tmp_path: Path) -> None:
    from firearrow.spark.pipelines.archive import archive
    from tests.store.archives import manifest, unpack

    path = unpack("a-clean", tmp_path)
    given = {"path": str(path), "brokerName": "broker-a", "maxSplitBytes": "300k"}

    done = archive(engine(), given, str(tmp_path / "out"))
    again = archive(engine(), given, str(tmp_path / "out"))

    wanted = Counter(message["topic"] for message in manifest("a-clean")["messages"])
    found = Counter(row["topic"] for row in archived(tmp_path / "out"))
    system = {topic for topic in wanted if topic.upper().startswith(("RMQ_SYS", "SCHEDULE_TOPIC", "TRANS_CHECK"))}
    assert found == {topic: count for topic, count in wanted.items() if topic not in system}
    assert (done.rows, again.rows) == (sum(found.values()), 0)


def test_invalid_jobs_are_rejected_before_they_start(brokers: Any, tmp_path: Path) -> None:
    from firearrow.spark.errors import DataLossError, SparkOptionError
    from firearrow.spark.pipelines.archive import archive
    from firearrow.spark.pipelines.journal import Journal
    from firearrow.spark.pipelines.storage import StorageLocation
    from firearrow.spark.pipelines.transfer import replay, transfer

    brokers.create_topic("One", 1)
    brokers.create_topic("Two", 1)
    fill(brokers, "One", 10)
    one, out = options(brokers, "One"), str(tmp_path / "out")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "other.csv").touch()
    archive(engine(), one, out)

    with pytest.raises(SparkOptionError, match=r"belongs to another job: its subscribe is \['One'\], this one's is \['Two'\]"):
        archive(engine(), options(brokers, "Two"), out)
    with pytest.raises(SparkOptionError, match=r"neither empty nor an archive \(it has 'other.csv'\)"):
        archive(engine(), one, str(tmp_path / "full"))
    with Journal(StorageLocation(out), "_firearrow"), pytest.raises(SparkOptionError, match="another job is running in"):
        archive(engine(), one, out)
    with pytest.raises(SparkOptionError, match="'One' would be copied to itself"):
        transfer(engine(), one, "One", str(tmp_path / "checkpoint"))
    with pytest.raises(SparkOptionError, match="the topic 'Nowhere' does not exist"):
        transfer(engine(), one, "Nowhere", str(tmp_path / "checkpoint"))
    with pytest.raises(SparkOptionError, match="is not an archive"):
        replay(engine(), str(tmp_path / "c"), name_server=brokers.name_server, to_topic="Two", archive=str(tmp_path / "full"))
    journal = Journal(StorageLocation(out), "_firearrow")
    done = journal.get("done", 1)
    done["position"]["offsets"]["One"]["broker-a"]["0"] = 99
    journal.put("done", 1, done)
    with pytest.raises(DataLossError, match="queue 0 of One on broker-a: it ends at"):
        archive(engine(), one, out)
    assert archive(engine(), {**one, "endingTimestamp": "1"}, str(tmp_path / "before")).rows == 0
