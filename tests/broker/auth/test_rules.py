"""Every request code that the broker serves has a rule, and the rules read what the handlers read."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from firearrow.auth.gate import AccessDeniedError
from firearrow.auth.policies import CREATE, DELETE, GET, PUB, SUB, UPDATE
from firearrow.auth.principal import Needs
from firearrow.broker.auth.rules import broker_rules
from firearrow.wire.codes import RequestCode as Code
from firearrow.wire.codes import ResponseCode
from firearrow.wire.errors import ProtocolError
from firearrow.wire.frame import Command
from tests.broker.kit import T0, Kit
from tests.broker.running import broker, client

NAMES = {PUB: "Pub", SUB: "Sub", CREATE: "Create", UPDATE: "Update", DELETE: "Delete", GET: "Get"}
SEND = {"a": "PG", "b": "T", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "0", "h": "0", "i": "", "j": "0"}
LONG_SEND = {"producerGroup": "PG", "topic": "T", "queueId": "0", "sysFlag": "0", "bornTimestamp": "0", "flag": "0"}
PULL = {
    "consumerGroup": "G", "topic": "T", "queueId": "0", "queueOffset": "0", "maxMsgNums": "1", "sysFlag": "0",
    "commitOffset": "0", "suspendTimeoutMillis": "0",
}  # fmt: skip
OFFSET = {"consumerGroup": "G", "topic": "T", "queueId": "0", "commitOffset": "1"}
QUEUE = {"topic": "T", "queueId": "0", "timestamp": "0"}
HEARTBEAT = {
    "clientID": "c",
    "consumerDataSet": [{"groupName": "G", "subscriptionDataSet": [{"topic": "T"}, {"topic": "%RETRY%G"}]}],
    "producerDataSet": [{"groupName": "PG"}],
}
LOCK = {"consumerGroup": "G", "clientId": "c", "mqSet": [{"topic": "T", "brokerName": "b", "queueId": 0}]}
TOPIC = {"topic": "T", "readQueueNums": "1", "writeQueueNums": "1", "perm": "6"}
RESET = {"topic": "T", "group": "G", "timestamp": "0"}
TOPICS = {"topicConfigList": [{"topicName": "T"}, {"topicName": "U"}]}
CLUSTER_GET, CLUSTER_UPDATE = ["Cluster:DefaultCluster Get"], ["Cluster:DefaultCluster Update"]
CONSUMER = ["Topic:T Sub", "Group:G Sub"]

CASES: list[tuple[Code, dict[str, Any], Any, list[str]]] = [
    (Code.SEND_MESSAGE, LONG_SEND, None, ["Topic:T Pub"]),
    (Code.SEND_MESSAGE_V2, SEND, None, ["Topic:T Pub"]),
    (Code.SEND_BATCH_MESSAGE, SEND, None, ["Topic:T Pub"]),
    (Code.SEND_MESSAGE_V2, SEND | {"b": "%RETRY%G"}, None, ["Group:G Sub"]),
    (Code.SEND_MESSAGE_V2, SEND | {"b": "%DLQ%G"}, None, ["Topic:%DLQ%G Pub"]),
    (Code.SEND_MESSAGE_V2, LONG_SEND, None, ["Topic:T Pub"]),
    (Code.SEND_REPLY_MESSAGE, LONG_SEND, None, ["Topic:T Pub"]),
    (Code.SEND_REPLY_MESSAGE_V2, SEND | {"b": "DefaultCluster_REPLY_TOPIC"}, None, []),
    (Code.RECALL_MESSAGE, {"topic": "T", "recallHandle": "x"}, None, ["Topic:T Pub"]),
    (Code.PULL_MESSAGE, PULL, None, CONSUMER),
    (Code.LITE_PULL_MESSAGE, PULL, None, CONSUMER),
    (Code.PULL_MESSAGE, PULL | {"topic": "%RETRY%G"}, None, ["Group:G Sub"]),
    (Code.PULL_MESSAGE, PULL | {"topic": "%RETRY%other"}, None, ["Group:other Sub", "Group:G Sub"]),
    (Code.HEART_BEAT, {}, HEARTBEAT, ["Group:G Sub", "Topic:T Sub"]),
    (Code.HEART_BEAT, {}, {"clientID": "c", "producerDataSet": [{"groupName": "PG"}]}, []),
    (Code.UNREGISTER_CLIENT, {"clientID": "c", "consumerGroup": "G"}, None, ["Group:G Sub"]),
    (Code.UNREGISTER_CLIENT, {"clientID": "c", "producerGroup": "PG"}, None, []),
    (Code.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": "G"}, None, ["Group:G Sub|Get"]),
    (Code.QUERY_CONSUMER_OFFSET, OFFSET, None, ["Topic:T Sub|Get", "Group:G Sub|Get"]),
    (Code.UPDATE_CONSUMER_OFFSET, OFFSET, None, ["Topic:T Sub|Update", "Group:G Sub|Update"]),
    (Code.LOCK_BATCH_MQ, {}, LOCK, ["Group:G Sub", "Topic:T Sub"]),
    (Code.UNLOCK_BATCH_MQ, {}, LOCK, ["Group:G Sub", "Topic:T Sub"]),
    (Code.CHECK_CLIENT_CONFIG, {}, {"clientId": "c", "group": "G", "subscriptionData": {"topic": "T"}}, CONSUMER),
    (Code.QUERY_ASSIGNMENT, {}, {"topic": "T", "consumerGroup": "G", "clientId": "c"}, CONSUMER),
    (
        Code.QUERY_MESSAGE,
        {"topic": "T", "key": "k", "maxNum": "1", "beginTimestamp": "0", "endTimestamp": "1"},
        None,
        ["Topic:T Sub|Get"],
    ),
    (Code.SEARCH_OFFSET_BY_TIMESTAMP, QUEUE, None, ["Topic:T Get"]),
    (Code.GET_MAX_OFFSET, QUEUE, None, ["Topic:T Get"]),
    (Code.GET_MAX_OFFSET, QUEUE | {"topic": "%RETRY%G"}, None, ["Group:G Sub|Get"]),
    (Code.GET_MIN_OFFSET, QUEUE, None, ["Topic:T Get"]),
    (Code.GET_EARLIEST_MSG_STORETIME, QUEUE, None, ["Topic:T Get"]),
    (Code.GET_TOPIC_STATS_INFO, {"topic": "T"}, None, ["Topic:T Get"]),
    (Code.QUERY_TOPIC_CONSUME_BY_WHO, {"topic": "T"}, None, ["Topic:T Get"]),
    (Code.GET_TOPIC_CONFIG, {"topic": "T"}, None, ["Topic:T Get"]),
    (Code.UPDATE_AND_CREATE_TOPIC, TOPIC, None, ["Topic:T Create"]),
    (Code.UPDATE_AND_CREATE_TOPIC_LIST, {}, TOPICS, ["Topic:T Create", "Topic:U Create"]),
    (Code.DELETE_TOPIC_IN_BROKER, {"topic": "T"}, None, ["Topic:T Delete"]),
    (Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, {"groupName": "G"}, ["Group:G Create"]),
    (Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, {}, {"groupConfigList": [{"groupName": "G"}]}, ["Group:G Create"]),
    (Code.DELETE_SUBSCRIPTIONGROUP, {"groupName": "G"}, None, ["Group:G Delete"]),
    (Code.GET_CONSUMER_CONNECTION_LIST, {"consumerGroup": "G"}, None, ["Group:G Get"]),
    (Code.GET_CONSUMER_RUNNING_INFO, {"consumerGroup": "G", "clientId": "c"}, None, ["Group:G Get"]),
    (Code.GET_SUBSCRIPTIONGROUP_CONFIG, {"group": "G"}, None, ["Group:G Get"]),
    (Code.QUERY_TOPICS_BY_CONSUMER, {"group": "G"}, None, ["Group:G Get"]),
    (Code.GET_CONSUME_STATS, {"consumerGroup": "G", "topicList": "T;U"}, None, ["Group:G Get", "Topic:T Get", "Topic:U Get"]),
    (Code.GET_CONSUME_STATS, {"consumerGroup": "G", "topic": "T"}, None, ["Group:G Get", "Topic:T Get"]),
    (Code.INVOKE_BROKER_TO_RESET_OFFSET, RESET, None, ["Topic:T Update", "Group:G Update"]),
    (Code.UPDATE_AND_GET_GROUP_FORBIDDEN, {"topic": "T", "group": "G"}, None, ["Topic:T Update", "Group:G Update"]),
    (
        Code.CLONE_GROUP_OFFSET,
        {"srcGroup": "S", "destGroup": "D", "topic": "T"},
        None,
        ["Group:D Update", "Group:S Get", "Topic:T Update"],
    ),
    (Code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, {"topic": "T", "group": "G"}, None, ["Topic:T Get", "Group:G Get"]),
    (Code.QUERY_CONSUME_TIME_SPAN, {"topic": "T", "group": "G"}, None, ["Topic:T Get", "Group:G Get"]),
    (
        Code.QUERY_CONSUME_QUEUE,
        {"topic": "T", "queueId": "0", "index": "0", "count": "1", "consumerGroup": "G"},
        None,
        ["Topic:T Get", "Group:G Get"],
    ),
    (Code.QUERY_SUBSCRIPTION_BY_CONSUMER, {"topic": "T", "group": "G"}, None, ["Topic:T Get", "Group:G Get"]),
    (
        Code.QUERY_CORRECTION_OFFSET,
        {"topic": "T", "compareGroup": "G", "filterGroups": "A,B"},
        None,
        ["Topic:T Get", "Group:G Get", "Group:A Get", "Group:B Get"],
    ),
    *[
        (code, {}, None, CLUSTER_GET)
        for code in (
            Code.GET_ALL_TOPIC_CONFIG, Code.GET_ALL_CONSUMER_OFFSET, Code.GET_ALL_DELAY_OFFSET, Code.GET_TIMER_CHECK_POINT,
            Code.GET_TIMER_METRICS, Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, Code.GET_ALL_MESSAGE_REQUEST_MODE,
            Code.GET_BROKER_HA_STATUS, Code.GET_BROKER_CONFIG, Code.GET_BROKER_RUNTIME_INFO, Code.VIEW_BROKER_STATS_DATA,
            Code.GET_SYSTEM_TOPIC_LIST_FROM_BROKER, Code.GET_PRODUCER_CONNECTION_LIST, Code.GET_BROKER_CONSUME_STATS,
            Code.GET_ALL_PRODUCER_INFO, Code.AUTH_GET_USER, Code.AUTH_LIST_USER, Code.AUTH_GET_ACL, Code.AUTH_LIST_ACL,
        )
    ],
    *[
        (code, {}, None, CLUSTER_UPDATE)
        for code in (
            Code.UPDATE_BROKER_CONFIG, Code.CLEAN_EXPIRED_CONSUMEQUEUE, Code.CLEAN_UNUSED_TOPIC, Code.DELETE_EXPIRED_COMMITLOG,
            Code.SET_MESSAGE_REQUEST_MODE, Code.AUTH_CREATE_USER, Code.AUTH_UPDATE_USER, Code.AUTH_DELETE_USER,
            Code.AUTH_CREATE_ACL, Code.AUTH_UPDATE_ACL, Code.AUTH_DELETE_ACL,
        )
    ],
]  # fmt: skip
# Rules that read a record: test_records.py.
WITH_RECORD = {
    Code.VIEW_MESSAGE_BY_ID,
    Code.CONSUMER_SEND_MSG_BACK,
    Code.END_TRANSACTION,
    Code.CONSUME_MESSAGE_DIRECTLY,
    Code.RESUME_CHECK_HALF_MESSAGE,
}


def shown(needs: Needs) -> list[str]:
    return [f"{need.resource} {'|'.join(name for bit, name in NAMES.items() if need.actions & bit)}" for need in needs]


@pytest.fixture
def kit(tmp_path: Path) -> Iterator[Kit]:
    kit = Kit(tmp_path)
    yield kit
    kit.close()


def needs(kit: Kit, code: Code, ext: dict[str, Any], body: Any = None) -> list[str]:
    raw = b"" if body is None else json.dumps(body).encode()
    return shown(broker_rules(kit.context)[code](Command(code, ext=ext, body=raw)))


@pytest.mark.parametrize(
    ("code", "ext", "body", "expected"), CASES, ids=lambda value: value.name if isinstance(value, Code) else ""
)
def test_needs(kit: Kit, code: Code, ext: dict[str, Any], body: Any, expected: list[str]) -> None:
    assert needs(kit, code, ext, body) == expected


def test_every_rule_is_tested(kit: Kit) -> None:
    assert {code for code, *_ in CASES} | WITH_RECORD == set(broker_rules(kit.context))


def test_every_served_code_has_a_rule(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path) as running, client(running) as peer:
            rules = broker_rules(running.context)
            for code in Code:
                answer = await peer.call(code)
                served = answer.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED
                assert served == (code in rules), f"{code.name}: add or remove its line in broker/auth/rules.py"

    asyncio.run(scenario())


def test_change_of_an_existing_topic_or_group_needs_update_or_create(kit: Kit) -> None:
    kit.context.topics.ensure("T", 1, 6, T0)
    kit.context.groups.find_or_create("G", T0)
    assert needs(kit, Code.UPDATE_AND_CREATE_TOPIC, TOPIC) == ["Topic:T Create|Update"]
    assert needs(kit, Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, {"groupName": "G"}) == ["Group:G Create|Update"]


@pytest.mark.parametrize(
    ("code", "ext", "body"),
    [
        (Code.SEND_MESSAGE_V2, SEND | {"b": " "}, None),
        (Code.PULL_MESSAGE, PULL | {"consumerGroup": ""}, None),
        (Code.PULL_MESSAGE, PULL | {"topic": "%RETRY%"}, None),
        (Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, {}),
    ],
)
def test_request_that_names_no_resource_is_refused(kit: Kit, code: Code, ext: dict[str, Any], body: Any) -> None:
    with pytest.raises(AccessDeniedError, match="names no"):
        needs(kit, code, ext, body)


@pytest.mark.parametrize("code", [Code.SEND_MESSAGE, Code.PULL_MESSAGE, Code.HEART_BEAT, Code.LOCK_BATCH_MQ])
def test_malformed_request_is_refused(kit: Kit, code: Code) -> None:
    with pytest.raises(ProtocolError):
        needs(kit, code, {}, None)
