"""Responses of the name server, compared with those of Apache 5.5.0 to the same requests."""

from __future__ import annotations

import base64
import copy
import json
import struct
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from firearrow.namesrv.handlers import HANDLERS, NamesrvService
from firearrow.namesrv.kv_config import KvConfig
from firearrow.namesrv.settings import NamesrvSettings
from firearrow.net.connection import Connection
from firearrow.wire import fastjson
from firearrow.wire.bodies.registration import RegisterBrokerBody
from firearrow.wire.bodies.route import TopicRouteData
from firearrow.wire.bodies.topic import DataVersion, TopicConfig
from firearrow.wire.frame import Command, FrameDecoder, encode_request

FIXTURES = Path(__file__).parent.parent / "fixtures" / "wire"
BROKER_SESSION = "broker-5.5.0-to-namesrv-registration"
SLAVE_SESSION = "slave-5.5.0-registration-and-sync"


class Conn:
    """Stands in for a connection: keeps what was written to it."""

    def __init__(self) -> None:
        self.written: list[Command] = []
        self.frames: list[bytes] = []
        self.told: list[tuple[int, dict[str, str]]] = []
        self.closed_because: str | None = None
        self.must_wait = False

    def write(self, data: bytes) -> None:
        self.frames.append(data)
        self.written += FrameDecoder().feed(data)

    def notify(self, code: int, ext: dict[str, str], body: bytes = b"") -> None:
        self.told.append((code, ext))

    def note_response(self, size: int) -> None:
        pass

    def close(self, reason: str) -> None:
        self.closed_because = reason


class Desk:
    """A name server service with a clock to turn, and a hand to ask it with."""

    def __init__(
        self,
        settings: NamesrvSettings | None = None,
        kv_config: KvConfig | None = None,
        save_error: Exception | None = None,
    ) -> None:
        self.now_ms = 1_000
        self.saved: list[dict[str, Any]] = []
        self.service = NamesrvService(
            settings or NamesrvSettings(),
            now_ms=lambda: self.now_ms,
            kv_config=kv_config,
            save_kv_config=self._save,
        )
        self._save_error = save_error
        self.conn = Conn()

    def _save(self, table: Callable[[], dict[str, Any]], done: Callable[[Exception | None], None]) -> None:
        self.saved.append(copy.deepcopy(table()))
        done(self._save_error)

    def ask(
        self, code: int, ext: dict[str, Any] | None = None, body: bytes = b"", *, conn: Conn | None = None, version: int = 513
    ) -> Command:
        conn = conn or self.conn
        self.service.received(
            cast(Connection, conn), [Command(code=code, opaque=7, flag=0, version=version, ext=ext or {}, body=body)]
        )
        return conn.written.pop()

    def register(
        self,
        *topics: str,
        name: str = "broker-a",
        broker_id: int = 0,
        address: str = "10.0.0.1:10911",
        counter: int = 1,
        conn: Conn | None = None,
        compressed: bool = False,
        version: int = 513,
        **ext: Any,
    ) -> Command:
        said = RegisterBrokerBody({t: TopicConfig(t, 4, 4) for t in topics or ("T", "U")}, DataVersion(counter, 0, 1))
        body = said.encode(compressed=compressed)
        header = {
            "brokerName": name,
            "brokerAddr": address,
            "clusterName": "C",
            "haServerAddr": "h:1",
            "brokerId": str(broker_id),
        }
        header |= {"compressed": str(compressed).lower(), "bodyCrc32": str(zlib.crc32(body) & 0x7FFFFFFF)}
        return self.ask(103, {**header, **ext}, body, conn=conn, version=version)


# Recorded sessions.


def exchanges(session: str) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """(request, response) pairs that a session had with the name server, in the order of the requests."""
    asked: list[tuple[dict[str, Any], list[dict[str, Any]]]] = []
    waiting: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for text in (FIXTURES / f"{session}.jsonl").read_text().splitlines():
        line = json.loads(text)
        if not line["conn"].startswith("ns") or "kind" not in line:
            continue
        key = (line["conn"], line["header"]["opaque"])
        if line["kind"] == "response":
            waiting.pop(key).append(line)
        else:
            waiting[key] = []
            asked.append((line, waiting[key]))
    assert asked, f"{session} holds nothing said to a name server"
    return iter((request, answers[0]) for request, answers in asked if answers)


def frame(line: dict[str, Any]) -> bytes:
    header, body = (base64.b64decode(line.get(f"{part}_b64", "")) for part in ("header", "body"))
    kind = 1 if line["ser"] == "ROCKETMQ" else 0
    return (4 + len(header) + len(body)).to_bytes(4, "big") + (kind << 24 | len(header)).to_bytes(4, "big") + header + body


def replay(desk: Desk, request: dict[str, Any]) -> tuple[Command, bytes]:
    desk.service.received(cast(Connection, desk.conn), FrameDecoder().feed(frame(request)))
    return desk.conn.written.pop(), desk.conn.frames.pop()


def test_recorded_registrations_are_answered_byte_for_byte() -> None:
    desk = Desk()
    compared: dict[int, int] = {}
    for request, recorded in exchanges(BROKER_SESSION):
        _, answered = replay(desk, request)
        assert answered == frame(recorded), request["name"]
        compared[request["code"]] = compared.get(request["code"], 0) + 1
    assert compared.keys() == {103, 104, 106}
    assert compared[103] > 20
    assert desk.service.routes.topics().topic_list == []  # it unregistered


def test_recorded_slave_receives_its_master_and_the_order_configuration() -> None:
    desk = Desk()
    for request, _ in exchanges(BROKER_SESSION):
        if request["code"] == 103:
            replay(desk, request)
    desk.ask(100, {"namespace": "ORDER_TOPIC_CONFIG", "key": "WAdmNew", "value": "broker-a:5"})
    before = desk.service.routes.topics().topic_list
    compared = 0
    for request, recorded in exchanges(SLAVE_SESSION):
        _, answered = replay(desk, request)
        assert answered == frame(recorded), request["name"]
        compared += 1
    assert compared >= 19
    assert desk.service.routes.topics().topic_list == before


@pytest.mark.parametrize(
    "session", sorted(p.stem for p in FIXTURES.glob("*.jsonl") if p.stem[:4] in ("java", "go-2", "node", "cpp-", "mqad"))
)
def test_recorded_client_requests_get_the_recorded_responses(session: str) -> None:
    """The table is brought into the state that the recorded answer shows; then the same bytes must get the same answer."""
    desk = Desk()
    desk.register("Some", "Topics", address="127.0.0.1:30911", clusterName="DefaultCluster", enableActingMaster="false")
    for request, recorded in exchanges(session) if "ns-" in (FIXTURES / f"{session}.jsonl").read_text() else ():
        if request["code"] == 105:
            topic = request["header"]["extFields"]["topic"]
            desk.service.routes.delete_topic(topic)
            if recorded["code"] == 0:
                shown = TopicRouteData.from_json(fastjson.loads(base64.b64decode(recorded["body_b64"])))
                desk.service.routes.register_topic(topic, shown.queue_datas)
        got, answered = replay(desk, request)
        _compare(request, recorded, got, answered)


def _compare(request: dict[str, Any], recorded: dict[str, Any], got: Command, answered: bytes) -> None:
    theirs = base64.b64decode(recorded.get("body_b64", ""))
    if request["code"] == 206:  # which topics there are is not the question here
        assert fastjson.loads(got.body).keys() == fastjson.loads(theirs).keys()
    elif recorded["code"] == 17:
        assert got.code == 17
        assert recorded["header"]["remark"].startswith(got.remark)  # theirs continues with a link
    elif request["ser"] == "ROCKETMQ":  # theirs answers in JSON, ours in the header type of the request
        assert (got.binary, got.code, got.body) == (True, recorded["code"], theirs)
    else:
        assert answered == frame(recorded), request["name"]


# Registration.


@pytest.mark.parametrize(("compressed", "version"), [(False, 513), (False, 409), (True, 513), (True, 409)])
def test_both_forms_of_registration_give_the_same_routes(compressed: bool, version: int) -> None:
    desk = Desk()
    said = RegisterBrokerBody({"T": TopicConfig("T", 3, 2, 6), "U": TopicConfig("U", 1, 1, 4)}, DataVersion(1, 0, 1))
    body = said.encode(compressed=compressed)
    header = {"brokerName": "b", "brokerAddr": "1.1.1.1:1", "clusterName": "C", "haServerAddr": "h:1", "brokerId": 0}
    assert desk.ask(103, {**header, "compressed": compressed}, body, version=version).code == 0
    route = fastjson.loads(desk.ask(105, {"topic": "T"}).body)
    assert route["queueDatas"] == [{"brokerName": "b", "perm": 6, "readQueueNums": 3, "topicSysFlag": 0, "writeQueueNums": 2}]
    assert route["brokerDatas"] == [
        {"brokerAddrs": {"0": "1.1.1.1:1"}, "brokerName": "b", "cluster": "C", "enableActingMaster": False}
    ]


def test_registration_with_a_wrong_checksum_is_rejected() -> None:
    desk = Desk()
    answer = desk.register(bodyCrc32="12345")
    assert (answer.code, answer.remark) == (1, "crc32 not match")
    assert desk.ask(105, {"topic": "T"}).code == 17
    assert desk.register(bodyCrc32="0").code == 0  # 0: not checked


def test_single_topic_registration_needs_a_known_broker() -> None:
    desk = Desk()
    refused = desk.register("T")
    assert refused.code == 1
    assert refused.remark is not None
    assert "all its topics first" in refused.remark
    desk.register("T", "U")
    assert desk.register("New", counter=2).code == 0
    assert desk.ask(105, {"topic": "New"}).code == 0


@pytest.mark.parametrize(
    ("ext", "body"),
    [
        ({}, b"{}"),
        ({"brokerName": "b", "brokerAddr": "a:1", "clusterName": "C", "haServerAddr": "", "brokerId": "x"}, b"{}"),
        ({"brokerName": "b", "brokerAddr": "a:1", "clusterName": "C", "haServerAddr": "", "brokerId": "0"}, b"[1,2"),
        ({"brokerName": "b", "brokerAddr": "a:1", "clusterName": "C", "brokerId": "0", "compressed": "true"}, b"not zlib"),
        (
            {"brokerName": "b", "brokerAddr": "a:1", "clusterName": "C", "brokerId": "0", "compressed": "true"},
            zlib.compress(b"\0"),
        ),
    ],
)
def test_invalid_registration_is_rejected_and_changes_nothing(ext: dict[str, str], body: bytes) -> None:
    desk = Desk()
    answer = desk.ask(103, ext, body)
    assert answer.code in (1, 29)
    assert answer.remark
    assert desk.service.routes.cluster_info().broker_addr_table == {}


def test_silent_brokers_expire_and_their_connections_are_closed() -> None:
    desk = Desk()
    silent, lively, short = Conn(), Conn(), Conn()
    desk.register(name="a", address="1.1.1.1:1", conn=silent)
    desk.register(name="b", address="1.1.1.2:1", conn=lively)
    desk.register(name="c", address="1.1.1.3:1", conn=short, heartbeatTimeoutMillis="10000")
    desk.now_ms += 10_001
    desk.service.tick()
    assert (silent.closed_because, lively.closed_because, short.closed_because is None) == (None, None, False)
    desk.now_ms += 60_000
    desk.ask(904, {"clusterName": "C", "brokerAddr": "1.1.1.2:1", "brokerName": "b"}, conn=lively)
    desk.now_ms += 60_000
    desk.service.tick()
    assert silent.closed_because == "its broker did not register again in time"
    assert lively.closed_because is None
    assert list(fastjson.loads(desk.ask(106).body)["brokerAddrTable"]) == ["b"]


def test_closed_connection_removes_its_broker_from_the_routes() -> None:
    desk = Desk()
    conn = Conn()
    desk.register(conn=conn)
    assert desk.ask(105, {"topic": "T"}).code == 0
    desk.service.disconnected(conn)  # type: ignore[arg-type]
    assert desk.ask(105, {"topic": "T"}).code == 17


def test_broker_can_query_whether_its_version_is_known() -> None:
    desk = Desk()
    who = {"brokerName": "broker-a", "brokerAddr": "10.0.0.1:10911", "clusterName": "C", "brokerId": "0"}
    mine = fastjson.dumps(DataVersion(1, 0, 1).to_json())
    unknown = desk.ask(322, who, mine)
    assert (unknown.code, unknown.ext, unknown.body) == (0, {"changed": "true"}, b"")
    desk.register(counter=1)
    same = desk.ask(322, who, mine)
    assert (same.ext, same.body) == ({"changed": "false"}, b'{"counter":1,"stateVersion":0,"timestamp":1}')
    assert desk.ask(322, who, fastjson.dumps(DataVersion(2, 0, 1).to_json())).ext == {"changed": "true"}
    desk.now_ms += 119_000
    desk.ask(322, who, mine)  # it counts as a sign of life
    desk.now_ms += 119_000
    desk.service.tick()
    assert desk.ask(105, {"topic": "T"}).code == 0


def test_members_are_notified_of_a_new_lowest_broker_id() -> None:
    desk = Desk(NamesrvSettings(notify_min_broker_id_changed=True))
    slave = Conn()
    desk.register(broker_id=1, address="10.0.0.2:10911", conn=slave)
    desk.register(broker_id=0)
    assert slave.told == [
        (905, {"minBrokerId": "0", "brokerName": "broker-a", "minBrokerAddr": "10.0.0.1:10911", "haBrokerAddr": "h:1"})
    ]
    group = desk.ask(901, {"clusterName": "C", "brokerName": "broker-a"})
    assert (
        group.body
        == b'{"brokerMemberGroup":{"brokerAddrs":{0:"10.0.0.1:10911",1:"10.0.0.2:10911"},"brokerName":"broker-a","cluster":"C"}}'
    )
    nobody = desk.ask(901, {"clusterName": "C", "brokerName": "x"})
    assert nobody.body == b'{"brokerMemberGroup":{"brokerAddrs":{},"brokerName":"x","cluster":"C"}}'


# Routes.


def test_route_keys_are_quoted_for_new_clients_and_bare_for_old_ones() -> None:
    desk = Desk()
    desk.register()
    cases: list[tuple[int, dict[str, Any], bytes]] = [
        (317, {}, b'{0:"10.0.0.1:10911"}'),
        (400, {}, b'{0:"10.0.0.1:10911"}'),
        (401, {}, b'{"0":"10.0.0.1:10911"}'),
        (317, {"acceptStandardJsonOnly": "true"}, b'{"0":"10.0.0.1:10911"}'),
        (317, {"acceptStandardJsonOnly": True}, b'{"0":"10.0.0.1:10911"}'),
    ]
    for version, ext, key in cases:
        answer = desk.ask(105, {"topic": "T", **ext}, version=version)
        assert key in answer.body
        assert b" " not in answer.body


def test_new_clients_get_plain_ascii() -> None:
    desk = Desk()
    desk.register(name="bröker-😀")
    standard, old = desk.ask(105, {"topic": "T"}), desk.ask(105, {"topic": "T"}, version=317)
    assert standard.body.isascii()
    assert b"br\\u00f6ker-\\ud83d\\ude00" in standard.body
    assert "bröker-😀".encode() in old.body
    assert json.loads(standard.body)["brokerDatas"][0]["brokerName"] == "bröker-😀"


def test_order_configuration_is_part_of_the_route_when_enabled() -> None:
    desk = Desk()
    desk.register()
    desk.ask(100, {"namespace": "ORDER_TOPIC_CONFIG", "key": "T", "value": "broker-a:4"})
    assert b"orderTopicConf" not in desk.ask(105, {"topic": "T"}).body
    assert desk.ask(318, body=b"orderMessageEnable=true").code == 0
    assert fastjson.loads(desk.ask(105, {"topic": "T"}).body)["orderTopicConf"] == "broker-a:4"
    assert b"orderTopicConf" not in desk.ask(105, {"topic": "U"}).body


def test_routes_wait_for_the_brokers_when_asked_to() -> None:
    desk = Desk(NamesrvSettings(need_wait_for_service=True))
    desk.register()
    assert desk.ask(105, {"topic": "T"}).code == 1
    desk.now_ms += 45_000
    assert desk.ask(105, {"topic": "T"}).code == 0


def test_lists_of_topics() -> None:
    desk = Desk()
    desk.register("T", "U")
    for code, ext, expected in [
        (206, {}, {"topicList": ["T", "U"]}),
        (224, {"cluster": "C"}, {"topicList": ["T", "U"]}),
        (224, {"cluster": "X"}, {"topicList": []}),
        (304, {}, {"brokerAddr": "10.0.0.1:10911", "topicList": ["C", "broker-a"]}),
        (311, {}, {"topicList": []}),
        (312, {}, {"topicList": []}),
        (313, {}, {"topicList": []}),
    ]:
        answer = desk.ask(code, ext)
        assert (answer.code, fastjson.loads(answer.body)) == (0, expected)
    desk.service.settings.enable_all_topic_list = False
    assert desk.ask(206).code == 1


def test_operators_change_permissions_and_topics() -> None:
    desk = Desk()
    desk.register("T", "U")
    assert desk.ask(205, {"brokerName": "broker-a"}).ext == {"wipeTopicCount": "2"}
    assert fastjson.loads(desk.ask(105, {"topic": "T"}).body)["queueDatas"][0]["perm"] == 4
    assert desk.ask(327, {"brokerName": "broker-a"}).ext == {"addTopicCount": "2"}
    assert fastjson.loads(desk.ask(105, {"topic": "T"}).body)["queueDatas"][0]["perm"] == 6
    assert desk.ask(205, {"brokerName": "nobody"}).ext == {"wipeTopicCount": "0"}
    assert desk.ask(216, {"topic": "T", "clusterName": "C"}).code == 0
    assert desk.ask(105, {"topic": "T"}).code == 17
    route = b'{"queueDatas":[{"brokerName":"broker-a","perm":6,"readQueueNums":2,"topicSysFlag":0,"writeQueueNums":2}]}'
    assert desk.ask(217, {"topic": "Hand"}, route).code == 0
    assert desk.ask(105, {"topic": "Hand"}).code == 0
    assert desk.ask(217, {"topic": "Nothing"}).code == 0
    assert desk.ask(105, {"topic": "Nothing"}).code == 17


# Key-value configuration and settings.


def test_key_value_configuration_is_kept_and_saved() -> None:
    desk = Desk()
    item = {"namespace": "NS", "key": "k"}
    missing = desk.ask(101, item)
    assert (missing.code, missing.remark) == (22, "No config item, Namespace: NS Key: k")
    assert desk.ask(219, {"namespace": "NS"}).code == 22
    assert desk.ask(100, {**item, "value": "v"}).code == 0
    assert desk.ask(101, item).ext == {"value": "v"}
    assert fastjson.loads(desk.ask(219, {"namespace": "NS"}).body) == {"table": {"k": "v"}}
    assert KvConfig.from_json(desk.saved[-1]).get("NS", "k") == "v"
    assert desk.ask(102, item).code == 0
    assert desk.ask(101, item).code == 22
    assert KvConfig.from_json(desk.saved[-1]).get("NS", "k") is None
    saves = len(desk.saved)
    assert desk.ask(102, item).code == 0  # nothing there: nothing to save
    assert len(desk.saved) == saves


def test_settings_are_shown_and_changed_within_bounds() -> None:
    desk = Desk(NamesrvSettings(listen_port=9876))
    shown = dict(line.split("=", 1) for line in desk.ask(319).body.decode().splitlines())
    assert (shown["listenPort"], shown["orderMessageEnable"]) == ("9876", "false")
    for text, code, words in [
        (b"kvConfigPath=/etc/passwd", 16, "Can not update config in black list"),
        (b"rocketmqHome=/x\norderMessageEnable=true", 16, "black list"),
        (b"orderMessageEnable=maybe", 29, "true or false"),
        (b"ordrMessageEnable=true", 29, "did you mean orderMessageEnable"),
        (b"listenPort=1", 29, "while running"),
        (b"\xff\xfe", 1, "cannot be read"),
    ]:
        answer = desk.ask(318, body=text)
        assert answer.code == code
        assert words in (answer.remark or "")
    assert desk.service.settings == NamesrvSettings(listen_port=9876)
    assert desk.ask(318, body=b"supportActingMaster=true\nnotifyMinBrokerIdChanged=true\n").code == 0
    assert desk.service.routes.support_acting_master
    assert desk.service.routes.notify_min_broker_id_changed


# The rest.


def test_an_unknown_code_is_answered_with_3() -> None:
    answer = Desk().ask(9999)
    assert (answer.code, answer.remark) == (3, " request type 9999 not supported")
    answer = Desk().ask(1005)
    assert (answer.code, answer.remark) == (3, " request type 1005 (CONTROLLER_GET_METADATA_INFO) not supported")


@pytest.mark.parametrize("code", sorted(HANDLERS))
@pytest.mark.parametrize("value", [[1], {"a": 1}, 1.5, "", "x" * 5000, None, -(2**70)])
def test_wrong_types_in_any_header_field_get_an_answer(code: int, value: Any) -> None:
    desk = Desk()
    fields = [
        "topic",
        "cluster",
        "clusterName",
        "brokerName",
        "brokerAddr",
        "brokerId",
        "haServerAddr",
        "namespace",
        "key",
        "value",
        "bodyCrc32",
        "compressed",
    ]
    answer = desk.ask(code, dict.fromkeys(fields, value), b"{}")
    assert answer.is_response
    assert answer.opaque == 7


def test_one_way_requests_are_served_and_not_answered() -> None:
    desk = Desk()
    request = encode_request(100, {"namespace": "N", "key": "k", "value": "v"}, opaque=1, oneway=True)
    unknown = encode_request(9999, {}, opaque=2, oneway=True)
    desk.service.received(cast(Connection, desk.conn), FrameDecoder().feed(request + unknown))
    assert desk.conn.frames == []
    assert desk.service.kv_config.get("N", "k") == "v"


def test_internal_error_is_answered_with_system_error(caplog: pytest.LogCaptureFixture) -> None:
    desk = Desk(save_error=OSError("no space left"))
    answer = desk.ask(100, {"namespace": "N", "key": "k", "value": "v"})
    assert (answer.code, answer.remark) == (1, "OSError: no space left")
    assert "was not saved: no space left" in caplog.text


@pytest.mark.parametrize("compressed", [False, True])
def test_registration_with_too_many_topics_is_rejected(compressed: bool) -> None:
    desk = Desk(NamesrvSettings(max_topics_per_registration=10))
    answer = desk.register(*(f"T{number}" for number in range(11)), compressed=compressed)
    assert answer.code == 1
    assert "11 topics, expected at most 10" in (answer.remark or "")
    assert desk.register(*(f"T{number}" for number in range(10)), compressed=compressed).code == 0


def test_compressed_registration_with_hundreds_of_thousands_of_topics_costs_little() -> None:
    desk = Desk()
    one = struct.pack(">i", 30) + b"TopicTopicTopic 4 4 6 SINGLE_T"
    version = b'{"counter":1,"stateVersion":0,"timestamp":1}'
    raw = struct.pack(">i", len(version)) + version + struct.pack(">i", 400_000) + one * 400_000
    header = {
        "brokerName": "b",
        "brokerAddr": "a:1",
        "clusterName": "C",
        "haServerAddr": "h:1",
        "brokerId": "0",
        "compressed": "true",
    }
    body = zlib.compress(raw)
    started = time.process_time()
    answer = desk.ask(103, header, body)
    assert (answer.code, time.process_time() - started < 1.0) == (1, True)
    assert "expected at most 40000" in (answer.remark or "")


def test_routes_and_brokers_are_limited() -> None:
    desk = Desk(NamesrvSettings(max_routes=3, max_brokers=2))
    assert desk.register("T", "U").code == 0
    assert desk.register("T", "U").code == 0  # the same again
    full = desk.register("T", "U", name="broker-b", address="10.0.0.2:10911")
    assert "maxRoutes=3" in (full.remark or "")
    assert desk.register("T", "U", broker_id=1, address="10.0.0.3:10911").code == 0
    many = desk.register("T", "U", broker_id=2, address="10.0.0.4:10911")
    assert "maxBrokers is 2" in (many.remark or "")
    desk.ask(104, {"brokerName": "broker-a", "brokerAddr": "10.0.0.3:10911", "clusterName": "C", "brokerId": "1"})
    desk.ask(104, {"brokerName": "broker-a", "brokerAddr": "10.0.0.1:10911", "clusterName": "C", "brokerId": "0"})
    assert desk.register("V", "W", name="broker-b", address="10.0.0.2:10911").code == 0


def test_key_value_configuration_is_limited() -> None:
    desk = Desk(NamesrvSettings(max_kv_config_size=20))
    item = {"namespace": "NS", "key": "k"}
    assert desk.ask(100, {**item, "value": "v" * 10}).code == 0
    full = desk.ask(100, {"namespace": "NS", "key": "other", "value": "v" * 10})
    assert (full.code, "maxKvConfigSize is 20" in (full.remark or "")) == (1, True)
    desk.ask(102, item)
    assert desk.ask(100, {"namespace": "NS", "key": "other", "value": "v" * 10}).code == 0
