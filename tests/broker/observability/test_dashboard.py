"""The Grafana dashboard asks for what there is: each of its queries, against the figures of a broker on which all happened."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.broker.observability.test_prometheus import GET, Figures, http, parse, transactions
from tests.broker.running import COMMIT, WITH_EXPRESSION, Client, broker, client
from tests.support.waiting import run

ROOT = Path(__file__).parents[3]
DASHBOARD: dict[str, Any] = json.loads((ROOT / "docs" / "grafana" / "firearrow-broker.json").read_text())

_SELECTOR = re.compile(r"\b((?:rocketmq|firearrow|process)_[a-z_]+)(\{[^}]*\})?")
_MATCHER = re.compile(r'([a-z_]+)(=~|=)"([^"]*)"')
_BY = re.compile(r"(?:by|ignoring)\s*\(([^)]*)\)")


def queries() -> list[tuple[str, str]]:
    """(where, expression)"""
    panels = [
        (panel["title"], target["expr"]) for panel in DASHBOARD["panels"] if panel["type"] != "row" for target in panel["targets"]
    ]
    variables = [(one["name"], one["query"]) for one in DASHBOARD["templating"]["list"] if one["type"] == "query"]
    return panels + variables


@pytest.fixture(scope="module")
def figures(tmp_path_factory: pytest.TempPathFactory) -> Figures:
    async def story() -> Figures:
        directory = tmp_path_factory.mktemp("broker")
        settings: dict[str, Any] = {"metrics_exporter_type": "PROM", "metrics_prom_exporter_port": 0}
        async with broker(directory, flush="SYNC_FLUSH", **settings) as running, client(running) as c:
            await everything(c)
            while not running.context.timers or not running.context.timers.metrics.pending:
                running.work()
            _, body = await http(running, GET)
            return parse(body.decode())

    return run(story())


async def everything(c: Client) -> None:
    """A producer and a consumer are known; a message is consumed, one is sent back, one dies, one waits, one has a time."""
    group = {
        "groupName": "G", "consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING",
        "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET", "unitMode": False,
        "subscriptionDataSet": [{"topic": "Orders", "subString": "*", "subVersion": 1}],
    }  # fmt: skip
    heartbeat = {"clientID": "one", "producerDataSet": [{"groupName": "P"}], "consumerDataSet": [group]}
    assert (await c.call(34, {}, json.dumps(heartbeat).encode())).code == 0
    await c.send("Orders", b"one")
    await transactions(c)
    await c.send("Orders", b"waits", DELAY="18")
    await c.send("Orders", b"has a time", TIMER_DELAY_SEC="600")
    assert (await c.pull("Orders", 0, flags=COMMIT | WITH_EXPRESSION)).code == 0
    for level in (1, -1):  # sent back, and given up at once
        answer = await c.call(36, {"offset": 0, "group": "G", "delayLevel": level, "originTopic": "Orders"})
        assert answer.code == 0, answer.remark


def test_apaches_metrics_exist(figures: Figures) -> None:
    """Metrics of a RocketMQ 5.5.0 broker after a few messages and transactions, without those of POP."""
    wanted = """broker_permission commit_messages_total consumer_connections consumer_group_number consumer_inflight_messages
        consumer_lag_latency_milliseconds consumer_lag_messages consumer_queueing_latency_milliseconds consumer_ready_messages
        finish_message_latency_milliseconds_count half_messages message_size_count messages_in_total messages_out_total
        processor_watermark producer_connections rollback_messages_total rpc_latency_milliseconds_count
        storage_dispatch_behind_bytes storage_flush_behind_bytes storage_message_reserve_time_milliseconds storage_size_bytes
        throughput_in_total throughput_out_total timer_dequeue_lag timer_dequeue_latency_milliseconds timer_enqueue_lag
        timer_enqueue_latency_milliseconds topic_number"""
    assert {f"rocketmq_{name}" for name in wanted.split()} - {name for name, _ in figures} == set()


@pytest.mark.parametrize(("where", "expression"), queries())
def test_dashboard_queries_match_metrics(figures: Figures, where: str, expression: str) -> None:
    selectors = _SELECTOR.findall(expression)
    assert selectors, expression
    seen: set[str] = set()
    for name, matchers in selectors:
        found = [dict(labels) for known, labels in figures if known == name and matches(dict(labels), matchers)]
        assert found, f"{where}: nothing is like {name}{matchers}"
        seen |= found[0].keys()
    grouped = {label.strip() for labels in _BY.findall(expression) for label in labels.split(",")}
    variable = re.fullmatch(r"label_values\(.*, (\w+)\)", expression)
    grouped |= {variable[1]} if variable is not None else set()
    assert grouped <= seen, f"{where}: no such label"


@pytest.mark.parametrize(
    "panel", [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"], ids=lambda one: one["title"]
)
def test_legends_use_existing_labels(panel: dict[str, Any]) -> None:
    for target in panel["targets"]:
        named = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
        grouped = re.search(r"by \(([^)]*)\)", target["expr"])
        left = {label.strip() for label in grouped[1].split(",")} if grouped is not None else {"cluster", "node_id", "node_type"}
        assert named <= left, target["expr"]


def test_panels_do_not_overlap() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        cells = {(x, y) for x in range(place["x"], place["x"] + place["w"]) for y in range(place["y"], place["y"] + place["h"])}
        assert not cells & taken, panel["title"]
        taken |= cells


def matches(labels: dict[str, str], matchers: str) -> bool:
    for label, operator, wanted in _MATCHER.findall(matchers):
        if label not in labels:
            return False
        if not wanted.startswith("$") and not (
            labels[label] == wanted if operator == "=" else re.fullmatch(wanted, labels[label])
        ):
            return False
    return True
