"""Figures for Prometheus: what they say of a broker whose story is known, and how they are served."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from firearrow.broker.observability.process import LoopLag
from firearrow.broker.observability.prometheus import TIMER_BOUNDS_S, Sources, escaped, pieces, version_text
from firearrow.broker.server import Broker
from tests.broker.kit import Kit
from tests.broker.running import Client, broker, client
from tests.support.waiting import run

Figures = dict[tuple[str, frozenset[tuple[str, str]]], float]

_LINE = re.compile(r"([a-z_]+[a-z0-9_]*)\{(.*)\} (\S+)")
_LABEL = re.compile(r'([a-z_]+)="((?:[^"\\\n]|\\["\\n])*)"(?:,|$)')


def parse(text: str) -> Figures:
    """Parse an exposition; raise AssertionError if the format is invalid."""
    figures: Figures = {}
    kinds: dict[str, str] = {}
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert name not in kinds, f"{name} comes twice"
            kinds[name] = kind
        elif not line.startswith("# HELP "):
            match = _LINE.fullmatch(line)
            assert match is not None, line
            name, labels, value = match.groups()
            family = re.sub("_(bucket|sum|count)$", "", name) if name not in kinds else name
            assert list(kinds)[-1] == family, f"{line} is not below its family"
            assert "".join(f'{key}="{text}",' for key, text in _LABEL.findall(labels)) == labels + ",", line
            key = (name, frozenset(_LABEL.findall(labels)))
            assert key not in figures, f"{line} comes twice"
            figures[key] = float(value)
            if kinds[family] == "counter":
                assert name.endswith("_total")
    return figures


def value(figures: Figures, name: str, **labels: str) -> float:
    """The only figure of that name with these labels."""
    found = [value for (known, its), value in figures.items() if known == name and labels.items() <= set(its)]
    assert len(found) == 1, f"{name} {labels}: {found}"
    return found[0]


def figures_of(kit: Kit) -> Figures:
    sources = Sources([], 0, LoopLag(), {"cluster": "DefaultCluster", "node_id": "broker-a", "node_type": "broker"}, None)
    return parse("".join(pieces(kit.context, sources, kit.now)))


async def http(running: Broker, request: bytes) -> tuple[bytes, bytes]:
    """(head, body) of the answer."""
    assert running.metrics is not None
    reader, writer = await asyncio.open_connection("127.0.0.1", running.metrics.port)
    writer.write(request)
    answer = await reader.read()
    writer.close()
    head, _, body = answer.partition(b"\r\n\r\n")
    return head, body


GET = b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"


@pytest.fixture
def kit(tmp_path: Path) -> Iterator[Kit]:
    one = Kit(tmp_path)
    yield one
    one.close()


def test_the_lag_of_a_group_is_what_it_has_not_consumed(kit: Kit) -> None:
    for _ in range(5):
        kit.put("Orders", 0, b"x")
        kit.now += 1000
    kit.put("Orders", 1, b"x")
    kit.context.topics.ensure("Orders", 2, 6, kit.now)
    kit.context.offsets.commit("g", "Orders", 0, 1)
    kit.context.offsets.pulled("g", "Orders", 0, 3)
    kit.context.offsets.commit("g", "Orders", 1, 0)

    figures = figures_of(kit)

    its = {"consumer_group": "g", "topic": "Orders", "is_retry": "false", "is_system": "false", "cluster": "DefaultCluster"}
    assert value(figures, "rocketmq_consumer_lag_messages", **its) == 5
    assert value(figures, "rocketmq_consumer_inflight_messages", **its) == 2
    assert value(figures, "rocketmq_consumer_ready_messages", **its) == 3
    assert value(figures, "rocketmq_consumer_lag_latency_milliseconds", **its) == 4000
    assert value(figures, "rocketmq_consumer_queueing_latency_milliseconds", **its) == 2000


def test_a_group_that_has_consumed_all_has_no_lag(kit: Kit) -> None:
    kit.put("Orders", 0, b"x")
    kit.context.topics.ensure("Orders", 1, 6, kit.now)
    kit.context.offsets.commit("g", "Orders", 0, 1)
    kit.now += 60_000

    figures = figures_of(kit)

    assert value(figures, "rocketmq_consumer_lag_messages", topic="Orders") == 0
    assert value(figures, "rocketmq_consumer_lag_latency_milliseconds", topic="Orders") == 0


def test_traffic_is_counted_by_topic_and_group(kit: Kit) -> None:
    kit.context.stats.topic_put("Orders").add(7, 700)
    kit.context.stats.topic_put("%DLQ%g").add(2, 20)
    kit.context.stats.got(kit.context.stats.group_get("g", "Orders"), 3, 300)
    kit.context.stats.put_took(30, 7, 310)

    figures = figures_of(kit)

    assert value(figures, "rocketmq_messages_in_total", topic="Orders", message_type="normal") == 7
    assert value(figures, "rocketmq_throughput_in_total", topic="Orders") == 700
    assert value(figures, "rocketmq_messages_out_total", topic="Orders", consumer_group="g") == 3
    assert value(figures, "rocketmq_throughput_out_total", topic="Orders", consumer_group="g") == 300
    assert value(figures, "rocketmq_send_to_dlq_messages_total", consumer_group="g") == 2
    assert value(figures, "firearrow_put_seconds_bucket_total", le="0.01") == 0
    assert value(figures, "firearrow_put_seconds_bucket_total", le="0.05") == 7
    assert value(figures, "firearrow_put_seconds_bucket_total", le="+Inf") == 7


def test_sizes_and_requests_are_histograms(kit: Kit) -> None:
    put = kit.context.stats.topic_put("Orders")
    put.add(7, 700)
    put.add(1, 1_024)
    put.add(2, 2 * 1_025)
    put.add(1, 5_000_000)
    kit.context.stats.served(11, 19, 0)
    kit.context.stats.served(11, 19, 4, 3)
    kit.context.stats.served(-1, 3, 5_000)

    figures = figures_of(kit)

    name, its = "rocketmq_message_size", {"topic": "Orders", "message_type": "normal"}
    counts = [value(figures, f"{name}_bucket", le=edge, **its) for edge in ("1024.0", "4096.0", "4194304.0", "+Inf")]
    assert counts == [8, 10, 10, 11]
    assert (value(figures, f"{name}_sum", **its), value(figures, f"{name}_count", **its)) == (5_003_774, 11)
    name, its = "rocketmq_rpc_latency_milliseconds", {"request_code": "pull_message", "response_code": "pull_not_found"}
    assert [value(figures, f"{name}_bucket", le=edge, **its) for edge in ("1.0", "3.0", "5.0", "+Inf")] == [1, 1, 4, 4]
    assert value(figures, f"{name}_sum", **its) == 12
    assert value(figures, f"{name}_bucket", request_code="unknown", le="3000.0") == 0


def test_requests_and_transactions_of_a_running_broker(tmp_path: Path) -> None:
    async def story() -> Figures:
        settings: dict[str, Any] = {"metrics_exporter_type": "PROM", "metrics_prom_exporter_port": 0}
        async with broker(tmp_path, **settings) as running, client(running) as c:
            await transactions(c)
            for code in (4711, 4712):
                assert (await c.call(code)).code == 3
            assert (await c.call(310, {"a": "P"}, b"x")).code == 29
            _, body = await http(running, GET)
            return parse(body.decode())

    figures = run(story())
    assert value(figures, "rocketmq_commit_messages_total", topic="Orders") == 1
    assert value(figures, "rocketmq_rollback_messages_total", topic="Orders") == 1
    assert value(figures, "rocketmq_finish_message_latency_milliseconds_count", topic="Orders") == 1
    assert value(figures, "rocketmq_half_messages") == 1
    name = "rocketmq_rpc_latency_milliseconds_count"
    assert value(figures, name, request_code="send_message_v2", response_code="success") == 3
    assert value(figures, name, request_code="send_message_v2", response_code="invalid_parameter") == 1
    assert value(figures, name, request_code="unknown", response_code="request_code_not_supported") == 2
    assert value(figures, "rocketmq_message_size_count", topic="Orders") == 1


def test_creation_latency_is_recorded(tmp_path: Path) -> None:
    async def story() -> Figures:
        settings: dict[str, Any] = {"metrics_exporter_type": "PROM", "metrics_prom_exporter_port": 0}
        async with broker(tmp_path, **settings) as running, client(running) as c:
            topic = {
                "topic": "Made", "defaultTopic": "TBW102", "readQueueNums": 4, "writeQueueNums": 4, "perm": 6,
                "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": "false",
            }  # fmt: skip
            assert (await c.call(17, topic)).code == 0
            assert (await c.call(17, topic | {"topic": "a/b"})).code != 0
            assert (await c.call(200, {}, b'{"groupName":"G"}')).code == 0
            _, body = await http(running, GET)
            return parse(body.decode())

    figures = run(story())
    name, its = "rocketmq_topic_create_execution_time_milliseconds", {"is_system": "false"}
    assert value(figures, f"{name}_count", invocation_status="success", **its) == 1
    assert value(figures, f"{name}_count", invocation_status="failure", **its) == 1
    assert value(figures, f"{name}_bucket", invocation_status="success", le="5000.0") == 1
    name = "rocketmq_consumer_group_create_execution_time_milliseconds"
    assert value(figures, f"{name}_count", invocation_status="success", **its) == 1


def test_timer_messages_are_counted_by_how_far_ahead_they_are(tmp_path: Path) -> None:
    async def story() -> Figures:
        settings: dict[str, Any] = {"metrics_exporter_type": "PROM", "metrics_prom_exporter_port": 0}
        async with broker(tmp_path, **settings) as running, client(running) as c:
            for delay_s in (30, 40, 250, 7_200, 80_000, 100_000):
                await c.send("Orders", b"x", TIMER_DELAY_SEC=str(delay_s))
            timers = running.context.timers
            while timers is None or timers.metrics.pending < 6:
                running.work()
            _, body = await http(running, GET)
            return parse(body.decode())

    figures = run(story())
    counts = [value(figures, "rocketmq_timer_message_snapshot", timer_bound_s=str(bound)) for bound in TIMER_BOUNDS_S]
    assert counts == [0, 2, 1, 0, 0, 1, 1]


async def transactions(c: Client) -> None:
    """Of three half messages one is committed, one rolled back, one left."""
    for fate in (8, 12, None):
        half = await c.send("Orders", b"x", TRAN_MSG="true", PGROUP="P")
        if fate is not None:
            ext = {
                "producerGroup": "P", "tranStateTableOffset": half.ext["queueOffset"], "commitOrRollback": fate,
                "commitLogOffset": int(str(half.ext["msgId"])[-16:], 16), "fromTransactionCheck": "false",
            }  # fmt: skip
            assert (await c.call(37, ext)).code == 0


def test_versions_are_named_as_rocketmq_names_them() -> None:
    assert [version_text(number) for number in (513, 433, 413, 407, 514)] == ["v5_5_0", "v5_1_0", "v5_0_0", "407", "514"]


def test_labels_are_escaped() -> None:
    assert escaped('a"b\\c\nd') == 'a\\"b\\\\c\\nd'
