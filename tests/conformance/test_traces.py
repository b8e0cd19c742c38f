"""Traces of Java clients, read by Apache's tool and ours."""

from __future__ import annotations

import json
import re
import subprocess
from typing import Any

from tests.conformance.agent import Agent
from tests.conformance.conftest import MakeTopic, fresh
from tests.conformance.servers import PATIENCE_MS, Cluster, firearrow_command
from tests.support.waiting import wait_until

TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"


def test_the_life_of_a_message_is_found_by_its_id(java: Agent, cluster: Cluster, make_topic: MakeTopic) -> None:
    topic, group, producer = make_topic(), fresh("traced"), fresh("tracing")
    java.call("push.start", name=group, group=group, namesrv=cluster.namesrv, topics={topic: "*"}, trace=True)
    java.call("producer.start", name=producer, group=producer, namesrv=cluster.namesrv, trace=True)
    (sent,) = java.call("producer.send", name=producer, topic=topic, messages=[{"body": "x", "tags": "T", "keys": "k-1"}])
    assert len(java.consumed(group, 1)) == 1

    wait_until(lambda: len(events(cluster, sent["msgId"])) >= 4, "the traces", PATIENCE_MS / 1000)
    found = {one["kind"]: one for one in events(cluster, sent["msgId"])}
    assert sorted(found) == ["Pub", "Stored", "SubAfter", "SubBefore"]
    assert (found["Pub"]["group"], found["SubAfter"]["group"]) == (producer, group)
    assert (found["Pub"]["success"], found["SubAfter"]["success"]) == (True, True)
    assert found["Pub"]["time_ms"] <= found["Stored"]["time_ms"] <= found["SubBefore"]["time_ms"]

    words = ["queryMsgTraceById", "-n", cluster.namesrv, "-i", sent["msgId"], "-t", TRACE_TOPIC]
    theirs = java.mqadmin([words])[0]
    ours = firearrow("mqadmin", *words)
    for text in (theirs, ours):
        assert re.search(rf"^Pub\s+{producer}\s.*success", text, re.MULTILINE), text
        assert re.search(rf"^Sub\s+{group}\s.*success", text, re.MULTILINE), text
    java.submit("push.stop", name=group)
    java.submit("producer.stop", name=producer)


def events(cluster: Cluster, msg_id: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(firearrow("trace", "show", msg_id, "-n", cluster.namesrv, "-o", "json") or "[]")
    return found


def firearrow(*words: str) -> str:
    return subprocess.run([*firearrow_command(), *words], capture_output=True, text=True, timeout=120, check=False).stdout
