"""Whatever a request holds, its handler answers, refuses, or leaves it for later: it never fails, and nothing strange is made."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from firearrow.wire import fastjson
from firearrow.wire.header_schema import Header, camel
from firearrow.wire.headers import admin, client
from tests.broker.fake_peer import FakeConnection
from tests.broker.kit import Kit, decode

NAMES = sorted(
    {
        camel(name)
        for module in (admin, client)
        for _, declared in inspect.getmembers(module, lambda value: isinstance(value, type) and issubclass(value, Header))
        for name in inspect.get_annotations(declared)
    }
    | {"clientID", "isForce", "isOrder", "_UNIQUE_KEY_QUERY", "removeOffset"}
)
WORDS = ["T", "G", "a", "", "../../x", "x" * 300, "T\x00", "%RETRY%G", "TBW102", "Ünïcode", "*", "true", "+a=b", "-1", "0"]
NUMBERS = [0, 1, -1, 2**31 - 1, -(2**31), 2**31, 2**63 - 1, -(2**63), 2**63, 10**30]
values = st.one_of(
    st.sampled_from(WORDS),
    st.sampled_from([str(number) for number in NUMBERS]),
    st.sampled_from(NUMBERS),
    st.booleans(),
    st.none(),
    st.floats(),
    st.just([1]),
    st.just({"a": 1}),
)
# Everything right, so that what is drawn on top of it is the one thing that is wrong.
VALID: dict[str, Any] = dict.fromkeys(NAMES, "1") | {
    "attributes": "",
    "clientAddr": "",
    "clientID": "a",
    "clientId": "a",
    "compareGroup": "G",
    "consumerGroup": "G",
    "defaultTopic": "TBW102",
    "destGroup": "G",
    "group": "G",
    "groupName": "Other",
    "indexType": "K",
    "isForce": "true",
    "key": "k",
    "msgId": "7F00000100002A9F0000000000000000",
    "perm": "6",
    "producerGroup": "P",
    "queueId": "0",
    "srcGroup": "G",
    "statsKey": "T",
    "statsName": "TOPIC_PUT_NUMS",
    "timestamp": "0",
    "topic": "T",
    "topicFilterType": "SINGLE_TAG",
    "topicList": "",
}
exts = st.tuples(st.sampled_from([{}, VALID, VALID]), st.dictionaries(st.sampled_from(NAMES), values, max_size=3)).map(
    lambda parts: parts[0] | parts[1]
)
KEYS = [
    "clientID", "clientId", "consumerGroup", "consumerDataSet", "producerDataSet", "groupName", "subscriptionDataSet",
    "topic", "mqSet", "topicConfigList", "groupConfigList", "subscriptionData", "strategyName", "messageModel", "mode",
    "heartbeatFingerprint", "subString", "subVersion", "queueId", "brokerName", "topicName", "perm", "attributes",
    "retryQueueNums", "group",
]  # fmt: skip
trees = st.recursive(
    st.one_of(st.none(), st.booleans(), st.sampled_from(NUMBERS), st.sampled_from(WORDS)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(KEYS), inner, max_size=6)),
    max_leaves=12,
)
bodies = st.one_of(
    st.binary(max_size=64),
    trees.map(lambda tree: json.dumps(tree).encode()),
    st.sampled_from([b"brokerPermission=9\n", b"a=b\n", b"\xff", b"{", b"fileReservedTime=1\nx"]),
)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kit]:
    kit = Kit(tmp_path_factory.mktemp("bad"))
    kit.topic("T", 4)
    kit.put("T", 0, b"x", keys="k")
    kit.beat(FakeConnection(1), "a", "G", "T")
    yield kit
    kit.close()


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_arbitrary_requests_do_not_make_a_handler_fail(shared: Kit, data: st.DataObject) -> None:
    kit = shared
    code = data.draw(st.sampled_from(sorted(kit.handlers)))
    ext: dict[str, Any] = data.draw(exts)
    body = data.draw(bodies)
    version = data.draw(st.sampled_from([0, 63, 317, 399, 401, 513]))
    response = kit.start_raw(code, ext, body, version=version, language=data.draw(st.sampled_from(["JAVA", "CPP", "GO"])))
    if response is not None:
        decode(response)
    for table, legal in ((kit.context.topics.all(), r"[%|\w-]{1,255}"), (kit.context.groups.all(), r"[%|\w-]{1,255}")):
        assert all(re.fullmatch(legal, name, re.ASCII) for name in table)


def test_arbitrary_requests_write_nothing_outside_the_store(tmp_path: Path) -> None:
    kit = Kit(tmp_path)
    for code in sorted(kit.handlers):
        for name in ("../../x", "/etc/x", "a/../b", "..", "\\\\x"):
            kit.start_raw(code, dict.fromkeys(NAMES, name), fastjson.dumps({"groupName": name, "topicName": name}))
            for field in ("topic", "group", "consumerGroup", "groupName", "destGroup"):
                kit.start_raw(code, VALID | {field: name}, b"")
    kit.close()
    assert [path.name for path in tmp_path.iterdir()] == ["store"]
    assert not list((tmp_path / "store").rglob("x"))
