"""The sink without Spark: tasks run, interrupted and repeated as Spark does."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from firearrow.spark.errors import SparkOptionError
from firearrow.spark.options import write_options
from firearrow.testing import Cluster
from tests.spark.running import NO_FLOW_CONTROL


@pytest.fixture
def target() -> Iterator[Any]:
    with Cluster(2, clock=None, properties=NO_FLOW_CONTROL) as cluster:
        yield cluster


def write(
    cluster: Any, topic: str | None, columns: dict[str, list[Any]], origin: Any, rows_per_batch: int = 300, **more: str
) -> Any:
    import pyarrow as pa

    from firearrow.spark.cluster import cluster_client as connected
    from firearrow.spark.write.input_columns import match_columns
    from firearrow.spark.write.sink import Sink

    options = write_options({"nameServer": cluster.name_server, **({"topic": topic} if topic else {}), **more})
    table = pa.table(columns)
    kinds = {"large_binary": "binary", "int32": "int", "int64": "bigint"}
    fields = [(field.name, kinds.get(str(field.type), str(field.type).replace(", ", ","))) for field in table.schema]
    sink = Sink(connected(options.client()), options, match_columns(fields, topic), origin)
    sink.write(table.to_batches(rows_per_batch))
    return sink


def origin(batch_id: int = 0, partition: int = 0, writer: str = "query") -> Any:
    from firearrow.spark.write.message_builder import Origin

    return Origin(writer, batch_id, partition)


def bodies(cluster: Any, topic: str) -> Counter[bytes]:
    return Counter(message.body for message in cluster.messages(topic))


def rows(count: int, first: int = 0) -> dict[str, list[Any]]:
    return {"body": [b"%d" % n for n in range(first, first + count)], "tags": ["t"] * count}


def flags(count: int) -> Any:
    import pyarrow as pa

    return pa.array(range(count), pa.int32())


def test_every_row_becomes_a_message(target: Any) -> None:
    target.create_topic("Plain", 2)

    sink = write(target, "Plain", {**rows(1000), "keys": [f"k{n}" for n in range(1000)]}, origin())

    assert (sink.rows, sink.bytes) == (1000, sum(len(b"%d" % n) for n in range(1000)))
    found = {message.body: message for message in target.messages("Plain")}
    assert len(found) == 1000
    assert found[b"17"].tags == "t"
    assert found[b"17"].keys == ("k17",)
    assert found[b"17"].properties["__SPARK_ID"] == "query/0/0/17"


@pytest.mark.parametrize("size", [300, 7, 1000])
def test_retried_task_stores_nothing_twice(target: Any, size: int) -> None:
    topic = f"Again{size}"
    target.create_topic(topic, 2)
    write(target, topic, rows(2500), origin())

    write(target, topic, rows(2500), origin(), rows_per_batch=size)

    assert bodies(target, topic) == Counter({b"%d" % n: 1 for n in range(2500)})


def test_interrupted_task_is_completed(target: Any) -> None:
    target.create_topic("Middle", 2)
    for part in (1, 450, 1234, 2500):
        write(target, "Middle", rows(part), origin(), rows_per_batch=part)

    write(target, "Middle", rows(3000), origin())

    assert bodies(target, "Middle") == Counter({b"%d" % n: 1 for n in range(3000)})


def test_rows_of_other_batches_and_partitions_are_distinct(target: Any) -> None:
    target.create_topic("Batches", 2)
    for number, partition in ((0, 0), (0, 1), (1, 0)):
        write(target, "Batches", rows(10), origin(number, partition))

    assert bodies(target, "Batches") == Counter({b"%d" % n: 3 for n in range(10)})


def test_retried_task_stores_nothing_twice_after_a_broker_is_killed(target: Any) -> None:
    target.create_topic("Killed", 2)
    write(target, "Killed", rows(1700), origin())
    for broker in target.brokers:
        broker.kill()
        broker.start()

    write(target, "Killed", rows(2000), origin())

    assert bodies(target, "Killed") == Counter({b"%d" % n: 1 for n in range(2000)})


def test_rows_of_a_sharding_key_keep_their_order_in_one_queue(target: Any) -> None:
    target.create_topic("Ordered", 4)
    keys = [f"key {n % 5}" for n in range(1000)]

    write(target, "Ordered", {**rows(1000), "shardingKey": keys}, origin())

    by_key: dict[str, list[tuple[Any, int, int]]] = {}
    for message in target.messages("Ordered"):
        place = (message.queue, message.queue_offset, int(message.body))
        by_key.setdefault(message.system_properties["__SHARDINGKEY"], []).append(place)
    for places in by_key.values():
        assert len({queue for queue, _, _ in places}) == 1
        assert [number for _, _, number in sorted(places)] == sorted(number for _, _, number in places)


def test_named_queues_and_delays_are_used(target: Any) -> None:
    import pyarrow as pa

    target.create_topic("Named", 2)
    columns = {**rows(3), "queueId": pa.array([1, 1, 0], pa.int32()), "brokerName": ["broker-b", "broker-a", "broker-a"]}

    write(target, "Named", columns, origin())
    write(target, "Named", {**rows(1, 3), "delayLevel": pa.array([1], pa.int32())}, origin(1))

    places = {message.body: (message.queue.broker_name, message.queue.queue_id) for message in target.messages("Named")}
    assert {body: place for body, place in places.items() if body != b"3"} == {
        b"0": ("broker-b", 1),
        b"1": ("broker-a", 1),
        b"2": ("broker-a", 0),
    }
    with pytest.raises(SparkOptionError, match="Named has no writable queue 7 on broker-a"):
        write(target, "Named", {**rows(1), "queueId": pa.array([7], pa.int32()), "brokerName": ["broker-a"]}, origin(2))


@pytest.mark.parametrize("more", [{}, {"sendBatchBytes": "2k"}, {"idempotent": "true"}])
def test_attempts_with_other_batch_sizes_store_nothing_twice(target: Any, more: dict[str, str]) -> None:
    """Other Arrow batches, larger requests and interrupted attempts do not change the rows or their order."""
    topic = f"Cut{len(more)}{more.get('idempotent', '')}"
    target.create_topic(topic, 3)
    keys = [f"k{n % 11}" if n % 5 else None for n in range(1500)]
    for count, size, options in ((130, 1, {}), (999, 67, more), (1000, 377, {"sendBatchBytes": "300"}), (1500, 1500, more)):
        columns = {**rows(count), "shardingKey": keys[:count], "flag": flags(count)}
        write(target, topic, columns, origin(), rows_per_batch=size, **options)

    assert bodies(target, topic) == Counter({b"%d" % n: 1 for n in range(1500)})
    by_queue: dict[Any, list[int]] = {}
    for message in sorted(target.messages(topic), key=lambda one: one.queue_offset):
        assert message.flag == int(message.body)
        by_queue.setdefault(message.queue, []).append(int(message.body))
    assert len(by_queue) == 6
    assert all(numbers == sorted(numbers) for numbers in by_queue.values())


def test_lost_replies_cause_no_duplicates(target: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stored run is sent again completely, and the next attempt starts at the first row."""
    from firearrow.client.errors import RequestTimeout
    from firearrow.spark.cluster import ClusterClient as Connected

    target.create_topic("Lost", 2)
    call = Connected.call_async
    answers = 0

    async def lost(self: Any, queue: Any, *args: Any) -> Any:
        nonlocal answers
        answer = await call(self, queue, *args)
        answers += 1
        if answers % 3 == 0:
            raise RequestTimeout("the answer")
        return answer if answers % 2 else await call(self, queue, *args)

    monkeypatch.setattr(Connected, "call_async", lost)
    for _ in range(30):
        try:
            write(target, "Lost", rows(2500), origin(), maxInFlight="1")
            break
        except RequestTimeout:
            continue
    monkeypatch.undo()
    write(target, "Lost", rows(2500), origin())

    assert bodies(target, "Lost") == Counter({b"%d" % n: 1 for n in range(2500)})


def test_concurrent_attempts_store_nothing_twice(target: Any) -> None:
    """Spark may consider a live executor dead, or run a slow task twice."""
    target.create_topic("Both", 2)
    keys = [f"k{n % 7}" for n in range(4000)]
    with ThreadPoolExecutor() as threads:
        attempts = [
            threads.submit(write, target, "Both", {**rows(4000), "shardingKey": keys}, origin(), rows_per_batch=size)
            for size in (1000, 90, 350)
        ]
        for attempt in attempts:
            attempt.result()

    assert bodies(target, "Both") == Counter({b"%d" % n: 1 for n in range(4000)})


def test_rows_go_to_the_topic_of_their_column(target: Any) -> None:
    for topic in ("ByColumnA", "ByColumnB"):
        target.create_topic(topic, 2)
    columns = {**rows(1200), "topic": [f"ByColumn{'AB'[n % 2]}" for n in range(1200)], "shardingKey": [None, "k", "l"] * 400}
    for _ in range(2):
        write(target, None, columns, origin())

    assert bodies(target, "ByColumnA") == Counter({b"%d" % n: 1 for n in range(0, 1200, 2)})
    assert bodies(target, "ByColumnB") == Counter({b"%d" % n: 1 for n in range(1, 1200, 2)})
    with pytest.raises(SparkOptionError, match="row 1 of partition 0 has no topic"):
        write(target, None, {**rows(2), "topic": ["ByColumnA", None]}, origin(1))


@pytest.mark.parametrize("most", ["1", "3", "16"])
def test_requests_in_flight_are_limited(target: Any, most: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from firearrow.spark.write.sink import Sink

    topic = f"Flight{most}"
    target.create_topic(topic, 4)
    in_flight, highest = 0, 0
    send_run = Sink.send_run

    async def counted(self: Any, *args: Any) -> None:
        nonlocal in_flight, highest
        in_flight += 1
        highest = max(highest, in_flight)
        await send_run(self, *args)
        in_flight -= 1

    monkeypatch.setattr(Sink, "send_run", counted)
    write(target, topic, {**rows(2000), "shardingKey": [str(n) for n in range(2000)]}, origin(), maxInFlight=most)

    assert 1 <= highest <= int(most)
    assert bodies(target, topic) == Counter({b"%d" % n: 1 for n in range(2000)})


def test_send_timeout_is_passed_to_every_request(target: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from firearrow.spark.cluster import ClusterClient as Connected

    target.create_topic("Patient", 1)
    timeouts: list[int] = []
    call = Connected.call_async

    async def recording(self: Any, queue: Any, request: Any, timeout_ms: int, body: bytes = b"") -> Any:
        timeouts.append(timeout_ms)
        return await call(self, queue, request, timeout_ms, body)

    monkeypatch.setattr(Connected, "call_async", recording)
    write(target, "Patient", rows(10), origin(), sendTimeoutMs="1234")

    assert set(timeouts) == {1234}


def test_reserved_properties_are_not_copied() -> None:
    from firearrow.spark.write.message_builder import NOT_COPIED

    assert {"UNIQ_KEY", "__PRODUCER_ID", "__PRODUCER_SEQ", "__SPARK_ID", "DELAY"} <= NOT_COPIED
    assert not {"TAGS", "KEYS", "amount"} & NOT_COPIED


@pytest.mark.parametrize(
    ("fields", "topic", "expected"),
    [
        ([("tags", "string")], "T", "the column body is missing"),
        ([("body", "binary"), ("tagz", "string")], "T", "unknown column 'tagz'; did you mean tags?"),
        ([("body", "int")], "T", "the column body has type int, expected binary or string"),
        ([("body", "binary")], None, "give the option topic, or a column topic"),
        ([("body", "binary"), ("queueId", "int")], "T", "queueId and brokerName must be given together"),
        ([("body", "binary")], "no/such", "option topic is 'no/such'"),
    ],
)
def test_invalid_frames_are_rejected(fields: list[tuple[str, str]], topic: str | None, expected: str) -> None:
    from firearrow.spark.write.input_columns import match_columns

    with pytest.raises(SparkOptionError) as error:
        match_columns(fields, topic)

    assert expected in str(error.value)


def test_read_frame_can_be_written_unchanged() -> None:
    from firearrow.spark.decode.schema import TYPES
    from firearrow.spark.write.input_columns import match_columns

    assert set(match_columns(list(TYPES.items()), "Copy").indexes) == {"body", "keys", "tags", "properties", "flag"}


def test_empty_body_is_reported_with_its_row(target: Any) -> None:
    target.create_topic("Empty", 1)

    with pytest.raises(SparkOptionError, match="row 1 of partition 0 has an empty body"):
        write(target, "Empty", {"body": [b"x", b""]}, origin())
