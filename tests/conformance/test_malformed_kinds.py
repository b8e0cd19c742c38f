"""Malformed delays, timers, transactions, decisions and send-backs: rejected with Apache's codes and without effect."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from tests.badinput import kinds
from tests.badinput.kinds import Case, changed, send_fields
from tests.conformance import rawcall
from tests.conformance.conftest import MakeTopic, fresh
from tests.conformance.servers import TARGET, Cluster

QUEUES = [(topic, 0) for topic in ("rmq_sys_wheel_timer", "RMQ_SYS_TRANS_HALF_TOPIC")]
QUEUES += [("SCHEDULE_TOPIC_XXXX", level) for level in range(18)]


def ends(cluster: Cluster, topic: str) -> dict[tuple[str, int], int]:
    found = {}
    for name, queue_id in [*QUEUES, (topic, 0)]:
        answer, _ = rawcall.call(cluster.broker, 30, {"topic": name, "queueId": str(queue_id)})
        found[name, queue_id] = int(answer["extFields"]["offset"]) if answer["code"] == 0 else 0
    return found


@pytest.fixture
def topic(cluster: Cluster, make_topic: MakeTopic) -> Iterator[str]:
    """A topic that must be unchanged, including deferred messages, at the end of the test."""
    name = make_topic()
    before = ends(cluster, name)
    yield name
    time.sleep(0.5)
    after = ends(cluster, name)
    assert {place: end for place, end in after.items() if end != before[place] + allowed.get(place[0], 0)} == {}
    allowed.clear()


allowed: dict[str, int] = {}  # messages that the running test stored on purpose


def expected(case: Case) -> int:
    return case.code if TARGET == "firearrow" or case.apaches is None else case.apaches


def refusals(cluster: Cluster, code: int, fields: dict[str, str], cases: list[Case]) -> dict[str, tuple[int, int]]:
    """Return the actual and the expected answer of every case that differs."""
    answers = [int(rawcall.call(cluster.broker, code, changed(fields, case.changes))[0]["code"]) for case in cases]
    told = zip(cases, answers, strict=True)
    return {str(case): (answer, expected(case)) for case, answer in told if answer != expected(case)}


def test_delays_timers_and_halves(cluster: Cluster, topic: str) -> None:
    wrong = {}
    for case in kinds.SENDS:
        answer, _ = rawcall.call(cluster.broker, 310, send_fields(topic, case.changes), b"x")
        if answer["code"] != expected(case):
            wrong[str(case)] = (answer["code"], answer.get("remark"))
    for kind in kinds.KINDS:
        for where, code in kinds.PLACES:
            answer, _ = rawcall.call(cluster.broker, 310, send_fields(topic, {**kind}) | where, b"x")
            if answer["code"] != code:
                wrong[f"{kind} to {where}"] = (answer["code"], answer.get("remark"))
    assert wrong == {}


def test_decisions(cluster: Cluster, topic: str) -> None:
    fields = send_fields(topic, {**kinds.HALF}) | {"g": str(int(time.time() * 1000))}
    answer, _ = rawcall.call(cluster.broker, 310, fields, b"half")
    assert answer["code"] == 0, answer
    allowed["RMQ_SYS_TRANS_HALF_TOPIC"] = 1
    fields = {
        "producerGroup": "p",
        "commitOrRollback": "8",
        "fromTransactionCheck": "false",
        "msgId": "U1",
        "tranStateTableOffset": answer["extFields"]["queueOffset"],
        "commitLogOffset": str(int(answer["extFields"]["msgId"][16:], 16)),
    }
    assert refusals(cluster, 37, fields, kinds.DECISIONS) == {}


def test_send_backs(cluster: Cluster, topic: str) -> None:
    answer, _ = rawcall.call(cluster.broker, 310, send_fields(topic, {"UNIQ_KEY": "U2"}), b"body")
    assert answer["code"] == 0, answer
    allowed[topic] = 1
    offset = str(int(answer["extFields"]["msgId"][16:], 16))
    fields = {"offset": offset, "group": fresh("group"), "delayLevel": "0", "originTopic": topic, "maxReconsumeTimes": "16"}
    assert refusals(cluster, 36, fields, kinds.SEND_BACKS) == {}
