"""Live reads without Spark: brokers in this process, tasks called as Spark calls them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from firearrow import Message, Producer
from firearrow.spark.errors import DataLossError, SparkOptionError
from firearrow.spark.options import read_options
from firearrow.spark.read.offsets import Queue
from firearrow.spark.read.planning import Range
from firearrow.testing import Cluster
from tests.spark.plain import message_row
from tests.spark.running import NO_FLOW_CONTROL, Server


def options(cluster: Any, **more: str) -> Any:
    return read_options({"nameServer": cluster.name_server, "subscribe": "Orders", **more}, stream=False)


def read(wanted: list[Range], opts: Any, names: list[str] | None = None) -> list[dict[str, Any]]:
    from firearrow.spark.decode.columns import select_columns
    from firearrow.spark.read.live import read_ranges

    columns = select_columns(names)
    return [one for batch in read_ranges(wanted, opts, columns) for one in batch.to_pylist()]


@pytest.fixture
def orders() -> Iterator[Any]:
    with Cluster(2, clock=None, properties=NO_FLOW_CONTROL) as cluster:
        cluster.create_topic("Orders", 2)
        with cluster.producer(send_timeout=60) as producer:
            sent = [
                producer.send_nowait(
                    Message("Orders", b"body %d" % n, tags="abc"[n % 3], keys=[f"k{n}"], properties={"n": str(n)})
                )
                for n in range(1000)
            ]
            for one in sent:
                one.result()
        yield cluster


def everything(cluster: Any, opts: Any) -> list[Range]:
    from firearrow.spark.cluster import cluster_client as connected
    from firearrow.spark.read.planning import ending_offsets, ranges_between, resolve_queues, starting_offsets

    servers = connected(opts.client())
    queues = resolve_queues(servers, opts)
    return ranges_between(starting_offsets(servers, queues, opts, "earliest"), ending_offsets(servers, queues, opts))


@pytest.mark.parametrize(("decode", "pull"), [("2048", "1024"), ("100", "7"), ("20", "1")])
def test_every_message_is_read_once_in_queue_order(orders: Any, decode: str, pull: str) -> None:
    opts = options(orders, decodeRecords=decode, pullBatchSize=pull)

    found = read(everything(orders, opts), opts)

    records = {(one.queue.broker_name, one.queue.queue_id, one.queue_offset): one for one in orders.messages("Orders")}
    assert len(found) == len(records) == 1000
    places = [(one["brokerName"], one["queueId"], one["queueOffset"]) for one in found]
    assert places == sorted(records)
    for one, place in zip(found, places, strict=True):
        expected = message_row(records[place])
        assert sorted(one.pop("properties")) == sorted(expected.pop("properties"))
        assert one == expected


def test_broker_filters_by_tags_and_sql(orders: Any) -> None:
    tags = options(orders, subExpression="a || c")
    sql = options(orders, subExpression="n >= 900", expressionType="SQL92")

    assert {one["tags"] for one in read(everything(orders, tags), tags, ["tags"])} == {"a", "c"}
    assert len(read(everything(orders, tags), tags, ["tags"])) == 667
    assert len(read(everything(orders, sql), sql, ["body"])) == 100


def test_starting_and_ending_options(orders: Any) -> None:
    whole = everything(orders, options(orders))
    queue = whole[0].queue
    begin = {"Orders": {b: {"0": -2, "1": -2} for b in ("broker-a", "broker-b")}}
    begin["Orders"][queue.broker_name]["0"] = 17
    end = {"Orders": {b: {"0": -1, "1": -1} for b in ("broker-a", "broker-b")}}
    end["Orders"][queue.broker_name]["0"] = 20
    part = everything(orders, options(orders, startingOffsets=json.dumps(begin), endingOffsets=json.dumps(end)))

    assert part == [Range(queue, 17, 20), *whole[1:]]
    assert everything(orders, options(orders, startingOffsets="latest")) == []
    assert everything(orders, options(orders, startingTimestamp="0")) == whole
    assert everything(orders, options(orders, endingTimestamp="1000")) == []
    assert everything(orders, options(orders, startingOffsets="group", consumerGroup="nobody")) == whole
    assert everything(orders, options(orders, startingOffsets="group", consumerGroup="nobody", groupResetStrategy="latest")) == []
    one = read_options({"nameServer": orders.name_server, "assign": '{"Orders":{"broker-b":[1]}}'})
    assert everything(orders, one) == whole[-1:]
    like = read_options({"nameServer": orders.name_server, "subscribePattern": "Ord.*"})
    assert everything(orders, like) == whole


def test_starting_and_ending_times_by_queue(orders: Any) -> None:
    whole = everything(orders, options(orders))
    stored = sorted((one.queue.broker_name, one.queue.queue_id, one.store_ms) for one in orders.messages("Orders"))
    begin: dict[str, Any] = {"Orders": {}}
    end: dict[str, Any] = {"Orders": {}}
    for queue, _, _ in whole:
        times = [at for name, number, at in stored if (name, number) == (queue.broker_name, queue.queue_id)]
        begin["Orders"].setdefault(queue.broker_name, {})[str(queue.queue_id)] = times[len(times) // 3]
        end["Orders"].setdefault(queue.broker_name, {})[str(queue.queue_id)] = times[-1]
    opts = options(orders, startingOffsetsByTimestamp=json.dumps(begin), endingOffsetsByTimestamp=json.dumps(end))

    found = read(everything(orders, opts), opts)

    wanted = [
        (name, number, at)
        for name, number, at in stored
        if begin["Orders"][name][str(number)] <= at < end["Orders"][name][str(number)]
    ]
    assert 0 < len(wanted) < 1000
    assert sorted((o["brokerName"], o["queueId"], round(o["storeTimestamp"].timestamp() * 1000)) for o in found) == wanted
    # A time for all queues takes precedence over times by queue, and these over offsets.
    assert everything(orders, options(orders, startingOffsetsByTimestamp=json.dumps(begin), startingTimestamp="0")) == whole
    assert everything(orders, options(orders, startingOffsetsByTimestamp=json.dumps(begin), startingOffsets="latest")) != []


def test_unusable_times_by_queue_are_rejected(orders: Any) -> None:
    late = {"Orders": {name: {"0": 1 << 50, "1": 1 << 50} for name in ("broker-a", "broker-b")}}
    assert everything(orders, options(orders, startingOffsetsByTimestamp=json.dumps(late))) == []
    strict = {"startingOffsetsByTimestamp": json.dumps(late), "startingOffsetsByTimestampStrategy": "error"}
    with pytest.raises(SparkOptionError, match="queue 0 of Orders on broker-a has no message stored at or after"):
        everything(orders, options(orders, **strict))
    with pytest.raises(SparkOptionError, match="startingOffsetsByTimestamp has no time for queue 0 of Orders on broker-a"):
        everything(orders, options(orders, startingOffsetsByTimestamp='{"Orders":{}}'))
    late["Orders"]["broker-c"] = {"0": 1}
    with pytest.raises(SparkOptionError, match="names queue 0 of Orders on broker-c, which is not read"):
        everything(orders, options(orders, endingOffsetsByTimestamp=json.dumps(late)))


def test_pull_batch_size_adapts_to_the_byte_limit(orders: Any) -> None:
    from firearrow.spark.cluster import cluster_client as connected
    from firearrow.spark.read.live import LivePuller

    opts = options(orders, pullMaxBytes="2k", decodeRecords="100")
    pull = LivePuller(connected(opts.client()), opts)
    for one in everything(orders, opts):
        pull.begin(one, lossless=True).result()

    assert 1 <= pull.batch_size <= 20
    assert len(read(everything(orders, opts), opts)) == 1000


def test_invalid_plans_are_rejected(orders: Any) -> None:
    for more, said in (
        ({"subscribe": "Nope"}, "the topic 'Nope' does not exist"),
        (
            {"startingOffsets": '{"Orders":{}}'},
            "startingOffsets has no offset for queue 0 of Orders on broker-a: name every queue",
        ),
        ({"startingOffsets": '{"Other":{"x":{"0":1}}}'}, "startingOffsets has no offset for queue 0 of Orders"),
    ):
        with pytest.raises(SparkOptionError, match=said):
            everything(orders, options(orders, **more))
    nobody = read_options({"nameServer": "127.0.0.1:1", "subscribe": "Orders"})
    with pytest.raises(SparkOptionError, match=r"name server 127.0.0.1:1"):
        everything(orders, nobody)
    assigned = read_options({"nameServer": orders.name_server, "assign": '{"Orders":{"broker-b":[9]}}'})
    with pytest.raises(SparkOptionError, match="assign names queue 9 of Orders on broker-b, which does not exist"):
        everything(orders, assigned)


def test_deleted_messages_are_data_loss_with_their_range(orders: Any) -> None:
    queue = everything(orders, options(orders))[0]
    beyond = [Range(queue.queue, queue.end - 2, queue.end + 5)]

    with pytest.raises(DataLossError, match=f"offsets {queue.end} to {queue.end + 4} of queue 0 of Orders on broker-a"):
        read(beyond, options(orders))
    assert len(read(beyond, options(orders, failOnDataLoss="false"))) == 2


def test_large_messages_are_read_in_several_chunks(orders: Any) -> None:
    orders.create_topic("Large", 1)
    with orders.producer(compress_over=1 << 30, send_timeout=60) as producer:
        for n in range(6):
            producer.send(Message("Large", bytes([n]) * (4 << 20 if n % 2 else 3 << 20)))
    opts = read_options({"nameServer": orders.name_server, "subscribe": "Large"})

    found = read(everything(orders, opts), opts, ["body", "queueOffset", "brokerName"])

    assert sorted((one["body"][0], len(one["body"])) for one in found) == [(n, 4 << 20 if n % 2 else 3 << 20) for n in range(6)]


def test_read_survives_a_broker_restart(orders: Any) -> None:
    opts = options(orders, decodeRecords="10", pullBatchSize="10")
    wanted = everything(orders, opts)
    from firearrow.spark.decode.columns import select_columns
    from firearrow.spark.read.live import read_ranges

    columns = select_columns(["queueOffset"])
    batches = read_ranges(wanted, opts, columns)
    count = next(batches).num_rows
    orders.brokers[0].stop()
    orders.brokers[0].start()

    assert count + sum(batch.num_rows for batch in batches) == 1000
    assert isinstance(wanted[0].queue, Queue)


def test_broker_is_reached_at_a_mapped_address(tmp_path: Path) -> None:
    server = Server(tmp_path, "brokerIP1=127.0.0.9")  # where nobody listens
    try:
        said = server.broker.replace("127.0.0.1", "127.0.0.9")
        server.create_topic("Orders", 1)
        where = {"nameServer": server.name_server, "subscribe": "Orders"}
        reached = read_options({**where, "brokerAddressMap": json.dumps({said: server.broker})})
        with Producer(server.name_server, group="p", broker_addresses=((said, server.broker),), send_timeout=60) as producer:
            producer.send(Message("Orders", b"here"))

        assert [one["body"] for one in read(everything(None, reached), reached)] == [b"here"]
        with pytest.raises(SparkOptionError, match=r"127\.0\.0\.9"):
            everything(None, read_options(where))
    finally:
        server.stop()
