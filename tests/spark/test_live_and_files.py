"""Comparison of a live read with a scan of the broker's files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from firearrow import Message, PullConsumer, ReceivedMessage
from firearrow.client.producer.transaction import LocalTransactionState
from firearrow.client.sync.clients import Producer, TransactionProducer
from tests.cli.process import ANY_PORTS, Started
from tests.spark.read.test_live import everything, read
from tests.spark.read.test_store_scan import scan
from tests.spark.running import NO_FLOW_CONTROL, wait_for, wait_for_queue_files


def rows(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    for one in found:
        one["properties"] = sorted(one["properties"])
    return sorted(found, key=lambda one: (one["queueId"], one["queueOffset"]))


def test_live_read_and_store_scan_return_the_same_rows(tmp_path: Path) -> None:
    from firearrow.spark.options import read_options

    settings = [word for name, value in NO_FLOW_CONTROL.items() for word in ("--set", f"{name}={value}")]
    server = Started(["up", "--data", str(tmp_path / "data"), *ANY_PORTS, *settings], tmp_path)
    try:
        words = server.line().split()
        name_server, broker_name = words[words.index("namesrv") + 1], words[words.index("namesrv") + 2]
        send_every_kind(name_server)
        opts = read_options({"nameServer": name_server, "subscribe": "Kinds"})
        wait_for(lambda: sum(one.size for one in everything(None, opts)), 45, "the transaction to be committed", 240)
        live = rows(read(everything(None, opts), opts))
        store = next(path.parent for path in (tmp_path / "data").rglob("commitlog"))

        wait_for_queue_files(store, ["Kinds"])
        wait_for(lambda: len(scan(store, subscribe="Kinds")), len(live), "rows below the flushed offset", 240)
        files = rows(scan(store, subscribe="Kinds", brokerName=broker_name, maxSplitBytes="100k"))
        halves = scan(store, includeSystemTopics="true")
        with PullConsumer(name_server, group="g", topics=["Kinds"], start_from="earliest") as consumer:
            pulled: dict[tuple[int, int], ReceivedMessage] = {}
            while len(pulled) < len(live):
                for message in consumer.poll():
                    pulled[message.queue.queue_id, message.queue_offset] = message
    finally:
        server.stop()
        server.end()

    assert len(live) == 45
    assert files == live
    assert any(one["topic"] == "RMQ_SYS_TRANS_HALF_TOPIC" for one in halves)
    for one in live:
        message = pulled[one["queueId"], one["queueOffset"]]
        assert (one["body"], one["tags"], one["msgId"]) == (message.body, message.tags, message.msg_id)
        assert dict(one["properties"]) == message.all_properties


def send_every_kind(name_server: str) -> None:
    with Producer(name_server, group="kinds", send_timeout=60) as producer:
        for n in range(40):
            producer.send(
                Message("Kinds", b"plain %d" % n, tags="t" if n % 2 else None, keys=["a", "b"], properties={"é": "漢🙂"})
            )
        producer.send(Message("Kinds", b"compressed" * 10_000))
        producer.send_batch([Message("Kinds", b"one"), Message("Kinds", b"two")])
    with Producer(name_server, group="large", compress_over=1 << 30, send_timeout=60) as producer:
        producer.send(Message("Kinds", bytes(range(256)) * (4 << 12)))
    with TransactionProducer(
        name_server,
        group="transactions",
        send_timeout=60,
        execute=lambda message, argument: LocalTransactionState.COMMIT,
        check=lambda message: LocalTransactionState.COMMIT,
    ) as producer:
        producer.send_in_transaction(Message("Kinds", b"committed"))
