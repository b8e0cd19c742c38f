"""Producer properties: sequence numbers of idempotent producers, and reserved names."""

from __future__ import annotations

import pytest

from tests.conformance import rawcall
from tests.conformance.agent import Agent
from tests.conformance.conftest import MakeTopic, fresh
from tests.conformance.servers import TARGET, Cluster

MESSAGE_ILLEGAL = 13


@pytest.mark.skipif(TARGET != "firearrow", reason="Apache's broker knows no idempotent producers")
def test_an_unchanged_client_can_number_its_messages(java: Agent, cluster: Cluster, producer: str, make_topic: MakeTopic) -> None:
    topic, who = make_topic(), fresh("numbering")
    numbers = [1, 2, 1, 3, 2]
    messages = [
        {
            "body": f"{number}",
            "queue": {"topic": topic, "broker": cluster.broker_name, "queueId": 1},
            "properties": {"__PRODUCER_ID": who, "__PRODUCER_SEQ": str(number)},
        }
        for number in numbers
    ]

    results = java.call("producer.send", name=producer, topic=topic, messages=messages)

    assert [result["status"] for result in results] == ["SEND_OK"] * 5
    assert [result["queueOffset"] for result in results] == [0, 1, 0, 2, 1]
    assert results[2]["offsetMsgId"] == results[0]["offsetMsgId"]
    assert _length(cluster, topic) == 3


@pytest.mark.parametrize(
    ("properties", "sys_flag"), [("INNER_NUM\x013\x02", "0"), ("", "128"), ("INNER_NUM\x013\x02", "128"), ("", "192")]
)
def test_an_inner_batch_is_refused_where_there_is_no_queue_for_it(
    cluster: Cluster, make_topic: MakeTopic, properties: str, sys_flag: str
) -> None:
    topic = make_topic()
    ext = {"a": "P", "b": topic, "c": "TBW102", "d": "4", "e": "1", "f": sys_flag, "g": "1700000000000", "h": "0"}
    ext |= {"i": properties, "j": "0", "k": "false", "m": "false"}

    answer, _ = rawcall.call(cluster.broker, 310, ext, b"x")

    assert answer["code"] == MESSAGE_ILLEGAL
    assert _length(cluster, topic) == 0


def _length(cluster: Cluster, topic: str) -> int:
    answer, _ = rawcall.call(cluster.broker, 30, {"topic": topic, "queueId": "1"})
    return int(answer["extFields"]["offset"])
