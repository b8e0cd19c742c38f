"""Request and reply with the Java clients: the requester gets the reply, and both sides get the outcome."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.conformance import rawcall
from tests.conformance.agent import Agent
from tests.conformance.conftest import MakeTopic, fresh
from tests.conformance.servers import PATIENCE_MS, Cluster

StartReplier = Callable[[str], str]


@pytest.fixture
def requester(java: Agent, cluster: Cluster) -> Iterator[str]:
    name = fresh("requester")
    java.call("requester.start", name=name, group=name, namesrv=cluster.namesrv)
    yield name
    java.submit("requester.stop", name=name)


@pytest.fixture
def start_replier(java: Agent, cluster: Cluster) -> Iterator[StartReplier]:
    started: list[str] = []

    def start(topic: str) -> str:
        name = fresh("replier")
        java.call("replier.start", name=name, group=name, topic=topic, namesrv=cluster.namesrv)
        started.append(name)
        return name

    yield start
    for name in started:
        java.submit("replier.stop", name=name)


def results(java: Agent, replier: str, count: int) -> list[dict[str, Any]]:
    return list(java.call("replier.results", name=replier, count=count, timeoutMs=PATIENCE_MS))


def ask(java: Agent, requester: str, topic: str, bodies: list[str], **options: Any) -> list[dict[str, Any]]:
    options.setdefault("timeoutMs", PATIENCE_MS)
    messages = [{"body": body} for body in bodies]
    return list(java.call("requester.ask", name=requester, topic=topic, messages=messages, timeout_s=180.0, **options))


def test_the_one_who_asks_gets_the_answer(
    java: Agent, cluster: Cluster, requester: str, start_replier: StartReplier, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    replier = start_replier(topic)

    (answer,) = ask(java, requester, topic, ["how much?"])

    assert (answer["topic"], answer["body"]) == (f"{cluster.cluster_name}_REPLY_TOPIC", "re:how much?")
    (result,) = results(java, replier, 1)
    assert result["sent"]["status"] == "SEND_OK"
    asked, told = result["asked"]["properties"], answer["properties"]
    assert asked["CLUSTER"] == cluster.cluster_name
    assert (told["MSG_TYPE"], told["CORRELATION_ID"]) == ("reply", asked["CORRELATION_ID"])
    assert told["REPLY_TO_CLIENT"] == asked["REPLY_TO_CLIENT"]
    assert int(told["PUSH_REPLY_TIME"]) > 0


def test_many_ask_at_once_and_each_gets_its_own_answer(
    java: Agent, requester: str, start_replier: StartReplier, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    start_replier(topic)
    ask(java, requester, topic, ["warm-up"])
    bodies = [f"question {number}" for number in range(30)]

    answers = ask(java, requester, topic, bodies, **{"async": True})

    assert [answer.get("body") for answer in answers] == [f"re:{body}" for body in bodies]


def test_a_question_that_nobody_answers_ends_with_the_clients_time(java: Agent, requester: str, make_topic: MakeTopic) -> None:
    topic = make_topic()

    (answer,) = ask(java, requester, topic, ["anybody?"], timeoutMs=2_000)

    assert answer["error"] == "RequestTimeoutException"


def test_an_answer_to_one_who_is_gone_fails_and_is_kept(
    java: Agent, cluster: Cluster, start_replier: StartReplier, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    asker = fresh("leaving")
    java.call("requester.start", name=asker, group=asker, namesrv=cluster.namesrv)
    ask(java, asker, topic, ["anybody?"], timeoutMs=500)
    java.call("requester.stop", name=asker)

    replier = start_replier(topic)

    (result,) = results(java, replier, 1)
    assert result["failed"]["code"] == 1
    assert "not found" in result["failed"]["trace"]


def test_replies_that_cannot_be_delivered_are_answered_with_apaches_codes(cluster: Cluster) -> None:
    reply_topic = f"{cluster.cluster_name}_REPLY_TOPIC"

    def reply(
        topic: str = reply_topic, queue: str = "0", properties: str = "REPLY_TO_CLIENT\x01nobody\x02"
    ) -> tuple[int, str, int]:
        ext = {"a": "P", "b": topic, "c": "TBW102", "d": "4", "e": queue, "f": "0", "g": "1700000000000", "h": "0"}
        ext |= {"i": properties, "j": "0", "k": "false", "m": "false"}
        answer, _ = rawcall.call(cluster.broker, 325, ext, b"yes")
        return answer["code"], answer.get("remark") or "", int((answer.get("extFields") or {}).get("queueOffset", -1))

    code, remark, first = reply()
    assert (code, remark) == (1, "push reply message fail, channel of <nobody> not found.")
    code, remark, second = reply(properties="KEYS\x01k\x02")
    assert (code, "REPLY_TO_CLIENT" in remark) == (1, True)
    assert second == first + 1  # stored nevertheless
    assert reply(topic="no topic")[0] == 29
    assert reply(queue="9")[0] == 29
    assert reply()[2] == second + 1
