"""The broker about itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from firearrow.auth.settings import AuthSettings
from firearrow.config.apache_keys import APACHE_KEYS
from firearrow.config.fields import declared
from firearrow.config.properties_file import parse_properties
from firearrow.wire import fastjson
from firearrow.wire.codes import ResponseCode
from tests.broker import captures
from tests.broker.kit import T0, Kit, body_of

# Apache leaves out what has no value.
UNSET = {"brokerIP2", "namesrvAddr", "haMasterAddress", "dLegerGroup", "dLegerPeers", "dLegerSelfId", "preferredLeaderId"}
UNSET |= {  # settings of access control, which the recorded broker does not answer
    "authConfigPath", "authenticationProvider", "authenticationMetadataProvider", "authenticationStrategy",
    "authenticationWhitelist", "initAuthenticationUser", "innerClientAuthenticationCredentials", "authorizationProvider",
    "authorizationMetadataProvider", "authorizationStrategy", "authorizationWhitelist", "authenticationEnabled",
    "authorizationEnabled", "migrateAuthFromV1Enabled",
}  # fmt: skip


def test_settings_are_read_and_changed(kit: Kit) -> None:
    answer = kit.ask(26)
    table = parse_properties(answer.body.decode())
    assert (table["brokerName"], table["flushDiskType"], table["autoCreateTopicEnable"]) == ("broker-a", "SYNC_FLUSH", "true")
    assert list(table) == sorted(table)
    assert fastjson.loads(answer.ext["version"])["counter"] == 0
    assert kit.ask(25, b"waitTimeMillsInSendQueue=500\nfileReservedTime=48\n").code == 0
    assert kit.settings.wait_time_mills_in_send_queue == 500
    assert kit.context.store_settings.file_reserved_time == 48
    assert fastjson.loads(kit.ask(26).ext["version"])["counter"] == 1


def test_settings_that_apache_answers_are_known_or_mean_nothing_here(kit: Kit) -> None:
    recorded = parse_properties(captures.body(captures.answer("mqadmin-5.5.0-getBrokerConfig", "GET_BROKER_CONFIG")).decode())
    ours = parse_properties(kit.ask(26).body.decode())
    own = {key for key in ours if key not in APACHE_KEYS}
    own |= set(declared(AuthSettings))  # of the network and of access control: Apache answers other settings
    assert {key for key in ours if key not in recorded} <= UNSET | own


@pytest.mark.parametrize(
    ("body", "code", "named"),
    [
        (b"brokerName=other\n", 16, "brokerName"),
        (b"storePathRootDir=/tmp/x\n", 16, "storePathRootDir"),
        (b"brokerConfigPath=/tmp/x\n", 16, "brokerConfigPath"),
        (b"fileReservedTime=48\nconfigBlackList=\n", 16, "configBlackList"),
        (b"waitTimeMillsInSendQueue=soon\n", 29, "whole number"),
        (b"waitTimeMillsInSendQueue=0\n", 29, "from 1"),
        (b"waitTimeMilsInSendQueue=500\n", 29, "did you mean waitTimeMillsInSendQueue"),
        (b"fileReservedTime=48\nwaitTimeMillsInSendQueue=-1\n", 29, "waitTimeMillsInSendQueue"),
        (b"", 29, "0 settings"),
        (b"\xff\xfe=1", 29, "key=value"),
        (b"a=\\u12", 29, "key=value"),
    ],
)
def test_changes_that_are_refused_change_nothing(kit: Kit, body: bytes, code: int, named: str) -> None:
    before = kit.ask(26).body
    answer = kit.ask(25, body)
    assert answer.code == code
    assert named in (answer.remark or "")
    assert kit.ask(26).body == before


def test_permission_and_auto_creation_reach_the_name_servers(kit: Kit) -> None:
    assert kit.ask(25, b"brokerPermission=4\n").code == 0
    assert kit.registered == 1
    assert kit.ask(25, b"autoCreateTopicEnable=false\n").code == 0
    assert kit.registered == 2
    assert kit.context.topics.find("TBW102") is None
    assert kit.ask(25, b"autoCreateTopicEnable=true\n").code == 0
    assert kit.context.topics.find("TBW102") is not None


def test_the_state_has_every_key_that_tools_read(kit: Kit) -> None:
    recorded = captures.json_body(captures.answer("mqadmin-5.5.0-brokerStatus", "GET_BROKER_RUNTIME_INFO"))["table"]
    kit.topic("T", 1)
    kit.put("T", 0, b"x")
    kit.context.stats.topic_put("T").add(1, 120)
    kit.now += 90_061_000
    table = body_of(kit.ask(28))["table"]
    left_out = {
        key for key in recorded if key not in table and not key.startswith(("scheduleMessageOffset_", "commitLogDiskRatio_"))
    }
    assert left_out == set()
    assert all(isinstance(value, str) for value in table.values())
    assert table["runtime"] == "[ 1 days, 1 hours, 1 minutes, 1 seconds ]"
    assert table["earliestMessageTimeStamp"] == str(T0)
    assert table["putMessageTimesTotal"] == table["msgPutTotalTodayNow"] == "1"
    for key in ("putTps", "getTransferredTps"):
        assert [float(rate) >= 0 for rate in table[key].split(" ")] == [True] * 3


def test_statistics_look_as_apaches(kit: Kit) -> None:
    missing = kit.ask(315, statsName="TOPIC_PUT_NUMS", statsKey="T")
    assert (missing.code, missing.remark) == (1, "The stats <TOPIC_PUT_NUMS> <T> not exist")
    put = kit.context.stats.topic_put("T")
    for second in range(1, 61):
        put.add(3, 300)
        kit.context.stats.tick(T0 + second * 1000)
    body = body_of(kit.ask(315, statsName="TOPIC_PUT_NUMS", statsKey="T"))
    assert list(body) == ["statsDay", "statsHour", "statsMinute"]
    assert list(body["statsMinute"]) == ["avgpt", "sum", "tps"]
    assert (body["statsMinute"]["sum"], body["statsMinute"]["tps"]) == (180, 3.0)


def test_a_broker_without_replicas(kit: Kit) -> None:
    kit.topic("T", 1)
    kit.put("T", 0, b"x")
    body = body_of(kit.ask(907))
    assert (body["master"], body["haConnectionInfo"], body["inSyncSlaveNums"]) == (True, [], 0)
    assert body["masterCommitLogMaxOffset"] == kit.store.max_offset


def test_assignment_by_the_broker(kit: Kit, tmp_path: Path) -> None:
    from tests.broker.fake_peer import FakeConnection

    kit.topic("T", 3)
    kit.beat(FakeConnection(1), "a", "G", "T")
    kit.beat(FakeConnection(2), "b", "G", "T")

    def queues(client: str, model: str = "CLUSTERING", topic: str = "T") -> list[int]:
        wish = {"clientId": client, "consumerGroup": "G", "messageModel": model, "strategyName": "AVG", "topic": topic}
        found = body_of(kit.ask(400, wish))["messageQueueAssignments"]
        assert all(entry["mode"] == "PULL" for entry in found)
        return [entry["messageQueue"]["queueId"] for entry in found]

    assert (queues("a"), queues("b"), queues("stranger")) == ([0, 1], [2], [])
    assert queues("a", "BROADCASTING") == [0, 1, 2]
    assert queues("a", topic="Nope") == []


def test_request_modes(kit: Kit) -> None:
    kit.topic("T", 1)
    wish = {"consumerGroup": "G", "mode": "PULL", "popShareQueueNum": 0, "topic": "T"}
    assert kit.ask(401, wish).code == 26
    kit.context.groups.find_or_create("G", kit.now)
    assert kit.ask(401, wish).code == 0
    assert body_of(kit.ask(402)) == {"messageRequestModeMap": {"T": {"G": wish}}} == kit.saved["modes"]
    assert kit.ask(401, wish | {"mode": "POP"}).code == 3
    assert kit.ask(401, wish | {"mode": "PUSH"}).code == 29
    assert kit.ask(401, wish | {"topic": "Nope"}).code == 17
    assert kit.ask(401, wish | {"topic": "%RETRY%G"}).code == 16


def test_long_list_of_settings_is_rejected_unread(kit: Kit) -> None:
    answer = kit.ask(25, body=b"k=v\n" * 100_000)
    assert answer.code == ResponseCode.INVALID_PARAMETER
    assert "65536" in (answer.remark or "")
