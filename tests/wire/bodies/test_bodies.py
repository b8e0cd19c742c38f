"""JSON bodies: those of 5.5.0 are written again byte for byte, those of other clients are understood, the rest is refused."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from firearrow.wire import fastjson
from firearrow.wire.bodies import admin, client, registration, route, topic
from firearrow.wire.body_schema import Body, member
from firearrow.wire.codes import VERSION
from firearrow.wire.codes import RequestCode as Code
from firearrow.wire.errors import ProtocolError
from tests.wire.captured import captured, sessions
from tests.wire.strategies import json_values

REQUEST_BODIES: dict[int, Any] = {
    Code.HEART_BEAT: client.HeartbeatData,
    Code.LOCK_BATCH_MQ: client.LockBatchRequestBody,
    Code.UNLOCK_BATCH_MQ: client.UnlockBatchRequestBody,
    Code.CHECK_CLIENT_CONFIG: client.CheckClientRequestBody,
    Code.REGISTER_BROKER: registration.RegisterBrokerBody,
    Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: topic.SubscriptionGroupConfig,
    Code.SET_MESSAGE_REQUEST_MODE: client.SetMessageRequestModeRequestBody,
}
RESPONSE_BODIES: dict[int, Any] = {
    Code.GET_ROUTEINFO_BY_TOPIC: route.TopicRouteData,
    Code.GET_BROKER_CLUSTER_INFO: route.ClusterInfo,
    Code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: route.TopicList,
    Code.REGISTER_BROKER: route.KVTable,
    Code.GET_CONSUMER_LIST_BY_GROUP: client.GetConsumerListByGroupResponseBody,
    Code.LOCK_BATCH_MQ: client.LockBatchResponseBody,
    Code.GET_CONSUMER_RUNNING_INFO: client.ConsumerRunningInfo,
    Code.GET_BROKER_RUNTIME_INFO: route.KVTable,
    Code.GET_CONSUMER_CONNECTION_LIST: admin.ConsumerConnection,
    Code.GET_CONSUME_STATS: admin.ConsumeStats,
    Code.GET_TOPIC_CONFIG: topic.TopicConfig,
    Code.GET_TOPIC_STATS_INFO: admin.TopicStatsTable,
    Code.QUERY_TOPIC_CONSUME_BY_WHO: admin.GroupList,
    Code.INVOKE_BROKER_TO_RESET_OFFSET: admin.ResetOffsetBody,
    Code.GET_ALL_TOPIC_CONFIG: topic.TopicConfigSerializeWrapper,
    Code.GET_ALL_CONSUMER_OFFSET: admin.ConsumerOffsetSerializeWrapper,
    Code.GET_ALL_DELAY_OFFSET: admin.DelayOffsetSerializeWrapper,
    Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: topic.SubscriptionGroupWrapper,
    Code.GET_ALL_MESSAGE_REQUEST_MODE: client.MessageRequestModeSerializeWrapper,
}
NOT_OURS = {Code.GET_TIMER_METRICS}
ALL_BODIES = [
    registration.RegisterBrokerBody,
    *dict.fromkeys(
        value
        for module in (admin, client, route, topic)
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, Body) and value is not Body
    ),
]


@pytest.mark.parametrize("session", sessions())
def test_captured_bodies_are_read_and_those_of_5_5_0_are_written_again_byte_for_byte(session: str) -> None:
    for sent in (each for each in captured() if each.file == session):
        if sent.body[:1] != b"{" or sent.request in NOT_OURS:
            continue
        cls = (RESPONSE_BODIES if sent.kind == "response" else REQUEST_BODIES)[sent.request]
        body = cls.from_json(fastjson.loads(sent.body))
        if sent.header["version"] == VERSION:
            quoted, bare = fastjson.dumps(body.to_json()), fastjson.dumps(body.to_json(), bare_int_keys=True)
            assert sent.body in (quoted, bare), sent
        assert cls.from_json(fastjson.loads(fastjson.dumps(body.to_json()))) == body


def _heartbeat(session: str) -> client.HeartbeatData:
    last = [sent for sent in captured() if sent.file == session and sent.kind == "request" and sent.request == 34][-1]
    return client.HeartbeatData.from_json(fastjson.loads(last.body))


@pytest.mark.parametrize(
    "session", ["cpp-pypi-0.4.4-producer-push", "go-2.1.2-producer-push", "node-ali-ons-3.12.0-producer-push"]
)
def test_heartbeats_of_all_languages_decode_alike(session: str) -> None:
    heartbeat = _heartbeat(session)
    (consumer,) = heartbeat.consumer_data_set
    assert heartbeat.client_id
    assert (consumer.consume_type, consumer.message_model) == ("CONSUME_PASSIVELY", "CLUSTERING")
    assert consumer.consume_from_where in ("CONSUME_FROM_LAST_OFFSET", "CONSUME_FROM_FIRST_OFFSET")
    for subscription in consumer.subscription_data_set:
        assert subscription.sub_version > 1_700_000_000_000
        assert all(isinstance(code, int) for code in subscription.code_set)
        assert subscription.expression_type == "TAG"


def test_missing_and_misspelled_heartbeat_fields_are_tolerated() -> None:
    heartbeat = client.HeartbeatData.from_json(
        {
            "clientID": "c",
            "consumerDataSet": [{"groupName": "g", "consumeType": "PUSH", "messageModel": 9, "consumeFromWhere": 5, "more": 1}],
        }
    )
    (consumer,) = heartbeat.consumer_data_set
    assert (consumer.consume_type, consumer.message_model, consumer.consume_from_where) == (None, None, "CONSUME_FROM_TIMESTAMP")
    assert (heartbeat.producer_data_set, consumer.subscription_data_set, heartbeat.without_sub) == ([], [], False)


@pytest.mark.parametrize(
    ("cls", "value", "said"),
    [
        (client.HeartbeatData, [], "HeartbeatData is a list of 0, expected an object"),
        (client.HeartbeatData, {}, "HeartbeatData: the key clientID is missing"),
        (client.HeartbeatData, {"clientID": {}}, "clientID is a map of 0, expected text"),
        (client.HeartbeatData, {"clientID": "c", "consumerDataSet": {}}, "consumerDataSet is a map of 0, expected a list"),
        (client.HeartbeatData, {"clientID": "c", "consumerDataSet": [7]}, "ConsumerData is 7"),
        (topic.DataVersion, {"counter": "x"}, "counter is 'x', expected an integer of 64 bits"),
        (topic.DataVersion, {"counter": 2**63}, "expected an integer of 64 bits"),
        (topic.DataVersion, {"counter": True}, "expected an integer of 64 bits"),
        (topic.TopicConfig, {"order": "maybe"}, "order is 'maybe', expected true or false"),
        (admin.ConsumeStats, {"consumeTps": "fast"}, "expected a number"),
        (admin.ConsumeStats, {"offsetTable": {"a": 1}}, "expected a map whose keys are objects"),
        (route.BrokerData, {"brokerAddrs": {"x": "a"}}, "brokerAddrs is a map of 1, expected an integer of 64 bits"),
        (route.KVTable, {"table": []}, "table is a list of 0, expected a map"),
    ],
)
def test_error_names_body_key_and_value(cls: type[Body], value: Any, said: str) -> None:
    with pytest.raises(ProtocolError) as caught:
        cls.from_json(value)
    assert said in str(caught.value)


def test_numbers_and_booleans_may_be_text() -> None:
    version = topic.DataVersion.from_json({"counter": "5", "stateVersion": 2.0, "timestamp": None})
    assert version == topic.DataVersion(counter=5, state_version=2, timestamp=0)
    config = topic.TopicConfig.from_json({"topicName": 7, "order": "TRUE", "perm": "6", "attributes": {"a": 1, "b": None}})
    assert (config.topic_name, config.order, config.perm, config.attributes) == ("7", True, 6, {"a": "1"})
    assert admin.ConsumeStats.from_json({"consumeTps": "0.5"}).consume_tps == 0.5
    assert route.QueueData.from_json({"brokerName": "b", "topicSynFlag": 1}).topic_sys_flag == 1


def test_message_queue_is_usable_as_a_key() -> None:
    queue = client.QueueBody("T", "b", 0)
    stats = admin.ConsumeStats(offset_table={queue: admin.OffsetWrapper(broker_offset=5)}, consume_tps=0.25)
    text = fastjson.dumps(stats.to_json())
    assert text == (
        b'{"consumeTps":0.25,"offsetTable":{{"brokerName":"b","queueId":0,"topic":"T"}:'
        b'{"brokerOffset":5,"consumerOffset":0,"lastTimestamp":0,"pullOffset":0}}}'
    )
    assert admin.ConsumeStats.from_json(fastjson.loads(text)) == stats


def test_route_has_no_spaces_and_omits_none() -> None:
    found = route.TopicRouteData(
        broker_datas=[route.BrokerData("c", "b", {0: "h:1", 2: "h:2"})], queue_datas=[route.QueueData("b", 4, 4, 6)]
    )
    assert fastjson.dumps(found.to_json(), bare_int_keys=True) == (
        b'{"brokerDatas":[{"brokerAddrs":{0:"h:1",2:"h:2"},"brokerName":"b","cluster":"c","enableActingMaster":false}],'
        b'"filterServerTable":{},"queueDatas":[{"brokerName":"b","perm":6,"readQueueNums":4,"topicSysFlag":0,"writeQueueNums":4}]}'
    )


def _empty(cls: Any) -> Any:
    try:
        return cls()
    except TypeError:
        return None


@pytest.mark.parametrize("cls", ALL_BODIES, ids=lambda cls: cls.__name__)
def test_new_body_round_trips(cls: Any) -> None:
    body = _empty(cls)
    if body is not None:
        written = body.to_json()
        assert list(written) == sorted(written)
        assert cls.from_json(fastjson.loads(fastjson.dumps(written))) == body


@pytest.mark.parametrize("cls", ALL_BODIES, ids=lambda cls: cls.__name__)
@settings(max_examples=15)
@given(st.data())
def test_any_json_yields_an_encodable_body_or_protocol_error(cls: Any, data: st.DataObject) -> None:
    known = _empty(cls) or client.HeartbeatData("c")
    keys = [*known.to_json(), "groupName", "clientID", "topic", "brokerName", "queueId"]
    value = data.draw(st.one_of(json_values(), st.dictionaries(st.sampled_from(keys), json_values(6), max_size=6)))
    try:
        body = cls.from_json(value)
    except ProtocolError:
        return
    fastjson.dumps(body.to_json())
    fastjson.dumps(body.to_json(), bare_int_keys=True)


def test_declaring_an_unsupported_type_raises_type_error() -> None:
    @dataclass(slots=True)
    class Wrong(Body):
        either: int | str = member(key="x", default=0)

    with pytest.raises(TypeError, match="unsupported field type"):
        Wrong.from_json({})
