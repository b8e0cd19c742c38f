"""The metrics page over HTTP: its labels, its errors, and that it does not block the event loop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from firearrow.broker.observability.endpoint import in_slices, parse_labels
from firearrow.config.fields import SettingError
from tests.broker.observability.test_prometheus import GET, http, parse, value
from tests.broker.running import COMMIT, WITH_EXPRESSION, broker, client
from tests.support.waiting import run


def test_labels_are_pairs_joined_by_commas() -> None:
    assert parse_labels("region:here,rack:7") == {"region": "here", "rack": "7"}
    assert parse_labels("url:http://x") == {"url": "http://x"}
    assert parse_labels("") == {}


@pytest.mark.parametrize("wrong", ["region", "re gion:x", "1a:x", ":x", "r\u00e9gion:x"])
def test_invalid_label_is_rejected(wrong: str) -> None:
    with pytest.raises(SettingError, match="metricsLabel"):
        parse_labels(wrong)


def test_running_broker_is_scraped(tmp_path: Path) -> None:
    async def story() -> None:
        settings: dict[str, Any] = {"metrics_exporter_type": "PROM", "metrics_prom_exporter_port": 0, "metrics_label": "rack:7"}
        async with broker(tmp_path, flush="SYNC_FLUSH", **settings) as running, client(running) as c:
            for _ in range(4):
                await c.send("Orders", b"hello")
            await c.pull("Orders", 0, flags=COMMIT | WITH_EXPRESSION, consumerGroup="readers", commitOffset=2)
            head, body = await http(running, GET)
            figures = parse(body.decode())

            assert head.startswith(b"HTTP/1.1 200 OK\r\n")
            assert f"Content-Length: {len(body)}\r\n".encode() in head
            its = {"cluster": "DefaultCluster", "node_id": "broker-a", "node_type": "broker", "rack": "7"}
            assert value(figures, "rocketmq_messages_in_total", topic="Orders", **its) == 4
            assert value(figures, "rocketmq_messages_out_total", topic="Orders", consumer_group="readers", **its) == 4
            assert value(figures, "rocketmq_consumer_lag_messages", topic="Orders", consumer_group="readers") == 2
            assert value(figures, "rocketmq_broker_permission") == 6
            assert value(figures, "rocketmq_storage_flush_behind_bytes") == 0
            assert value(figures, "firearrow_flushes_total") >= 1
            assert value(figures, "firearrow_flush_seconds_total") > 0
            assert value(figures, "firearrow_log_offset_bytes", of="max") == running.context.store.max_offset
            assert value(figures, "firearrow_store_writable") == 1
            assert value(figures, "firearrow_connections") == 1
            assert value(figures, "firearrow_budget_used", budget="connections") == 1
            assert value(figures, "firearrow_budget_limit", budget="outgoing_bytes") == 64 << 20
            assert value(figures, "firearrow_connections_refused_total", limit="total") == 0
            assert value(figures, "process_resident_memory_bytes") > 10_000_000
            assert abs(value(figures, "process_start_time_seconds") - time.time()) < 86_400
            assert value(figures, "process_open_fds") > 3

    run(story())


def test_port_in_use_is_reported_and_the_store_closed(tmp_path: Path) -> None:
    async def story() -> None:
        server = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(OSError, match="metricsPromExporterPort"):
            async with broker(tmp_path, metrics_exporter_type="PROM", metrics_prom_exporter_port=port):
                pass
        server.close()
        async with broker(tmp_path) as running:
            assert running.metrics is None

    run(story())


def test_long_page_does_not_block_the_loop() -> None:
    """The loop is asked between any two slices: its longest wait is a slice, not the page."""

    def slow_pieces() -> Iterator[str]:
        for number in range(400):
            end = time.perf_counter() + 0.0005
            while time.perf_counter() < end:
                pass
            yield f"{number}\n"

    async def story() -> None:
        turns = 0
        done = False

        async def others() -> None:
            nonlocal turns
            while not done:
                turns += 1
                await asyncio.sleep(0)

        asking = asyncio.create_task(others())
        blocks = await in_slices(slow_pieces(), pause_s=0.0)
        done = True
        await asking
        assert b"".join(blocks).split() == [str(number).encode() for number in range(400)]
        assert turns >= 50

    run(story())
