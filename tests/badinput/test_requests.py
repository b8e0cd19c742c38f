"""Well-formed frames with hostile contents: wrong types, invalid names, huge counts, negative numbers, invalid bodies."""

from __future__ import annotations

import asyncio
import json
import struct
import zlib
from typing import Any

import pytest

from firearrow.wire import batch
from firearrow.wire.codes import RequestCode
from tests.badinput.hostile import ALL_CODES, Attacker, request, valid_ext
from tests.badinput.victim import GROUP, TOPIC, tree, under_attack
from tests.conformance.servers import Cluster
from tests.wire.headers.registry import REQUEST_HEADERS

NAMES = {"topic": TOPIC, "consumerGroup": GROUP, "group": GROUP, "producerGroup": "p", "groupName": GROUP, "srcGroup": GROUP}
NAMES |= {
    "destGroup": GROUP,
    "compareGroup": GROUP,
    "brokerName": "nobody",
    "cluster": "DefaultCluster",
    "clusterName": "DefaultCluster",
}
NAMES |= {
    "brokerAddr": "127.0.0.1:1",
    "haServerAddr": "127.0.0.1:2",
    "namespace": "ns",
    "key": "k",
    "value": "v",
    "clientID": "c",
}

EVIL_NAMES = [
    "../../x",
    "..",
    "/etc/x",
    "a/b",
    "a\\b",
    "x\0y",
    "x" * 5000,
    "a\nb",
    "ü",
    "\u202e",
    "~/x",
    "$(x)",
    "con: x",
]
ANY_TYPE = [[1], {"a": 1}, 1.5]
WRONG = {
    "int": [*ANY_TYPE, "abc", "1.5", "0x10", "\u0661", str(2**31), str(-(2**31) - 1), 2**40, "9" * 400, "1_000", "NaN", "null"],
    "Long": [*ANY_TYPE, "abc", "1.5", "0x10", str(2**63), str(-(2**63) - 1), 2**70, "9" * 400, "1e5"],
    "str": ANY_TYPE,
    "bool": ANY_TYPE,
}
FIELDS = [(code, spec) for code, header in sorted(REQUEST_HEADERS.items()) for spec in header.FIELDS]


@pytest.fixture(params=["broker", "namesrv"])
def address(request: pytest.FixtureRequest, victim: Cluster) -> str:
    return str(getattr(victim, request.param))


def test_wrong_types_in_every_header_field_are_rejected(victim: Cluster, address: str) -> None:
    async def scenario() -> list[str]:
        accepted = []
        async with under_attack(victim), Attacker(address) as attacker:
            for code, spec in FIELDS:
                for value in WRONG[spec.kind]:
                    ext = {**valid_ext(code, NAMES), spec.key: value}
                    answer = await attacker.ask(code, ext, b"body")
                    if answer is not None and answer.code == 0:
                        accepted.append(f"{RequestCode(code).name} {spec.key}={value!r}")
        return accepted

    assert asyncio.run(scenario()) == []


def test_missing_required_fields_are_rejected(victim: Cluster, address: str) -> None:
    """Every required field is left out once."""

    async def scenario() -> list[str]:
        accepted = []
        async with under_attack(victim), Attacker(address) as attacker:
            for code, spec in FIELDS:
                if spec.required:
                    ext = valid_ext(code, NAMES)
                    del ext[spec.key]
                    answer = await attacker.ask(code, ext, b"body")
                    if answer is not None and answer.code == 0:
                        accepted.append(f"{RequestCode(code).name} without {spec.key}")
        return accepted

    assert asyncio.run(scenario()) == []


def test_invalid_names_in_header_fields_create_nothing(victim: Cluster, address: str) -> None:
    """No path is derived from such a name, and no topic or group has it afterwards."""

    async def scenario() -> list[str]:
        accepted = []
        before = tree(victim)
        async with under_attack(victim, may_write=True), Attacker(address) as attacker:
            for code, spec in FIELDS:
                if spec.kind != "str" or (address == victim.namesrv and code in HARMLESS_AT_THE_NAME_SERVER):
                    continue
                for name in EVIL_NAMES:
                    answer = await attacker.ask(code, {**valid_ext(code, NAMES), spec.key: name}, b"body")
                    makes = code in MAKERS.get(spec.key, ())
                    if makes and answer is not None and answer.code == 0:
                        accepted.append(f"{RequestCode(code).name} {spec.key}={name[:20]!r}")
        strange = [path for path in tree(victim) - before if any(name[:50] in path for name in EVIL_NAMES)]
        return accepted + strange

    assert asyncio.run(scenario()) == []


# The key-value configuration accepts any text, and a registration is only kept in memory.
HARMLESS_AT_THE_NAME_SERVER = {
    int(RequestCode.PUT_KV_CONFIG),
    int(RequestCode.REGISTER_BROKER),
    int(RequestCode.REGISTER_TOPIC_IN_NAMESRV),
}
# Requests that would create a topic or group of the given name.
MAKERS = {
    "topic": {10, 310, 320, 11, 361, 15, 17, 513},
    "consumerGroup": {11, 361, 15},
    "group": {222, 36},
    "destGroup": {314},
}


def test_invalid_names_in_bodies_create_nothing(victim: Cluster) -> None:
    """Bodies create topics and groups, too."""

    async def scenario() -> list[str]:
        accepted = []
        before = tree(victim)
        async with under_attack(victim), Attacker(victim.broker) as attacker:
            for name in EVIL_NAMES:
                topic = {"topicName": name, "readQueueNums": 4, "writeQueueNums": 4, "perm": 6, "topicFilterType": "SINGLE_TAG"}
                bodies: dict[int, Any] = {
                    RequestCode.UPDATE_AND_CREATE_TOPIC_LIST: {"topicConfigList": [topic]},
                    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: {"groupName": name},
                    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: {"groupConfigList": [{"groupName": name}]},
                }
                for code, body in bodies.items():
                    answer = await attacker.ask(code, {}, json.dumps(body).encode())
                    if answer is not None and answer.code == 0:
                        accepted.append(f"{RequestCode(code).name} {name[:20]!r}")
                heartbeat = {
                    "clientID": name,
                    "producerDataSet": [{"groupName": name}],
                    "consumerDataSet": [
                        {
                            "groupName": name,
                            "consumeType": "CONSUME_PASSIVELY",
                            "messageModel": "CLUSTERING",
                            "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
                            "subscriptionDataSet": [{"topic": name, "subString": "*"}],
                        }
                    ],
                }
                await attacker.ask(RequestCode.HEART_BEAT, {}, json.dumps(heartbeat).encode())
                await attacker.ask(
                    RequestCode.LOCK_BATCH_MQ, {}, json.dumps({"clientId": name, "consumerGroup": name, "mqSet": []}).encode()
                )
        strange = [path for path in tree(victim) - before if any(name[:50] in path for name in EVIL_NAMES)]
        return accepted + strange

    assert asyncio.run(scenario()) == []


def test_every_code_with_empty_and_invalid_bodies_is_answered_or_disconnected(victim: Cluster, address: str) -> None:
    """Each request gets a response or a closed connection, for codes that exist and codes that do not."""

    async def scenario() -> None:
        unknown = [0, -1, 999, 12345, 99_999, 2**31 - 1, -(2**31)]
        # Deleting what does not exist succeeds, as in Apache's broker.
        async with under_attack(victim), Attacker(address) as attacker:
            for code in [*ALL_CODES, *unknown]:
                for body in (b"", b"\0", b"{}", b"[]", b"null", b'{"a":', b"\xff" * 300, b"[" * 50_000, b'{"a":' * 20_000):
                    await attacker.ask(code, {}, body)

    asyncio.run(scenario())


def test_extreme_numbers_are_answered_and_change_no_table(victim: Cluster, address: str) -> None:
    """Every numeric field of every request is set to its limits, one at a time."""

    async def scenario() -> None:
        harmful = {int(RequestCode.UPDATE_AND_CREATE_TOPIC), int(RequestCode.UPDATE_AND_CREATE_STATIC_TOPIC)}
        limits = {"int": [-1, -(2**31), 2**31 - 1, 1_000_000], "Long": [-1, -(2**63), 2**63 - 1, 10**15]}
        async with under_attack(victim, may_write=True), Attacker(address) as attacker:
            for code, spec in FIELDS:
                # A long poll and a transaction end with unknown outcome wait legitimately.
                if code in harmful or spec.kind not in limits or spec.key in ("suspendTimeoutMillis", "commitOrRollback"):
                    continue
                for number in limits[spec.kind]:
                    await attacker.ask(code, {**valid_ext(code, NAMES), spec.key: str(number)}, b"body")

    asyncio.run(scenario())


@pytest.mark.parametrize("field", ["readQueueNums", "writeQueueNums", "perm"])
@pytest.mark.parametrize("number", [-1, 2**31 - 1, 10_000_000, 255])
def test_topics_with_impossible_numbers_are_rejected(victim: Cluster, field: str, number: int) -> None:
    async def scenario() -> None:
        ext = valid_ext(RequestCode.UPDATE_AND_CREATE_TOPIC, {"topic": "Impossible", "readQueueNums": "4", "writeQueueNums": "4"})
        async with under_attack(victim), Attacker(victim.broker) as attacker:
            answer = await attacker.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, {**ext, field: str(number)})
            assert answer is not None
            assert answer.code != 0

    if field != "perm" and number == 255:
        pytest.skip("many queues, but possible")
    asyncio.run(scenario())


def test_huge_counts_in_reads_are_bounded(victim: Cluster) -> None:
    async def scenario() -> None:
        most = str(2**31 - 1)
        pull = valid_ext(RequestCode.PULL_MESSAGE, NAMES) | {"maxMsgNums": most, "sysFlag": "4"}
        query = valid_ext(RequestCode.QUERY_MESSAGE, NAMES) | {"maxNum": most}
        entries = valid_ext(RequestCode.QUERY_CONSUME_QUEUE, NAMES) | {"count": most, "index": "0"}
        async with under_attack(victim), Attacker(victim.broker) as attacker:
            for _ in range(20):
                answer = await attacker.ask(RequestCode.PULL_MESSAGE, pull)
                assert answer is not None
                assert answer.code == 0
                assert len(answer.body) < 16 * 2**20
                await attacker.ask(RequestCode.QUERY_MESSAGE, query)
                await attacker.ask(RequestCode.QUERY_CONSUME_QUEUE, entries)

    asyncio.run(scenario())


def test_suspension_of_a_pull_is_bounded(victim: Cluster) -> None:
    """A timeout of years is shortened: thousands of such pulls cost little and end with their connection."""

    async def scenario() -> None:
        pull = valid_ext(RequestCode.PULL_MESSAGE, NAMES) | {
            "sysFlag": "6",
            "queueId": "3",
            "suspendTimeoutMillis": str(2**63 - 1),
        }
        async with under_attack(victim, memory_mb=64):
            links = [Attacker(victim.broker) for _ in range(10)]
            for link in links:
                await link.__aenter__()
            closed = await asyncio.gather(*(link.is_closed_after(_pulls(pull, 300), 1.5) for link in links))
            assert closed == [False] * 10
            for link in links:
                await link.__aexit__()

    asyncio.run(scenario())


def _pulls(ext: dict[str, Any], count: int) -> bytes:
    return b"".join(request(RequestCode.PULL_MESSAGE, ext, opaque=i + 1) for i in range(count))


def test_bodies_with_many_entries_use_bounded_memory(victim: Cluster) -> None:
    """Bodies near the frame limit contain tens of thousands of entries."""

    async def scenario() -> None:
        subscription = {"topic": TOPIC, "subString": "*", "tagsSet": [], "codeSet": [], "subVersion": 1}
        heartbeat = {"clientID": "big", "producerDataSet": [{"groupName": f"g{i}"} for i in range(60_000)], "consumerDataSet": []}
        consumer = {
            "clientID": "big",
            "consumerDataSet": [
                {"groupName": GROUP, "subscriptionDataSet": [dict(subscription, topic=f"t{i}") for i in range(30_000)]},
            ],
        }
        locks = {
            "clientId": "c",
            "consumerGroup": GROUP,
            "mqSet": [{"topic": TOPIC, "brokerName": "b", "queueId": i} for i in range(60_000)],
        }
        async with under_attack(victim, memory_mb=256), Attacker(victim.broker) as attacker:
            await attacker.ask(RequestCode.HEART_BEAT, {}, json.dumps(heartbeat).encode())
            await attacker.ask(RequestCode.HEART_BEAT, {}, json.dumps(consumer).encode())
            await attacker.ask(RequestCode.LOCK_BATCH_MQ, {}, json.dumps(locks).encode())

    asyncio.run(scenario())


BATCHES = {
    "empty": b"",
    "too short": b"\0\0",
    "size zero": struct.pack(">iiiii", 0, 0, 0, 0, 0),
    "size negative": struct.pack(">iiiii", -5, 0, 0, 0, 0) + b"x" * 50,
    "size huge": struct.pack(">iiiii", 2**31 - 1, 0, 0, 0, 0) + b"x" * 50,
    "body longer than all": struct.pack(">iiiii", 30, 0, 0, 0, 1000) + b"x" * 50,
    "body negative": struct.pack(">iiiii", 30, 0, 0, 0, -1) + b"x" * 50,
    "properties longer than all": struct.pack(">iiiii", 23, 0, 0, 0, 1) + b"x" + struct.pack(">h", 500),
    "properties negative": struct.pack(">iiiii", 23, 0, 0, 0, 1) + b"x" + struct.pack(">h", -1),
    "good then broken": batch.join([(0, b"good", b"")]) + b"\0\0\0\1",
    "random": bytes(range(256)) * 10,
}


@pytest.mark.parametrize("name", BATCHES)
def test_broken_batches_are_rejected_as_a_whole(victim: Cluster, name: str) -> None:
    async def scenario() -> None:
        ext = valid_ext(RequestCode.SEND_BATCH_MESSAGE, NAMES) | {"batch": "true"}
        async with under_attack(victim), Attacker(victim.broker) as attacker:
            answer = await attacker.ask(RequestCode.SEND_BATCH_MESSAGE, ext, BATCHES[name])
            assert answer is None or answer.code != 0

    asyncio.run(scenario())


def test_messages_over_the_limits_are_rejected(victim: Cluster) -> None:
    async def scenario() -> None:
        ext = valid_ext(RequestCode.SEND_MESSAGE, NAMES)
        async with under_attack(victim, memory_mb=96), Attacker(victim.broker) as attacker:
            for changes, body in (
                ({}, b"x" * (4 * 2**20 + 1)),
                ({}, b"x" * (15 * 2**20)),
                ({}, b""),
                ({"properties": "k\x01" + "v" * 40_000}, b"x"),
                ({"queueId": "4"}, b"x"),
                ({"queueId": str(2**31 - 1)}, b"x"),
            ):
                answer = await attacker.ask(RequestCode.SEND_MESSAGE, ext | changes, body)
                assert answer is None or answer.code != 0, changes

    asyncio.run(scenario())


def test_invalid_broker_settings_are_rejected(victim: Cluster) -> None:
    """Paths, names and commands cannot be changed remotely; unknown keys and invalid values are rejected."""

    async def scenario() -> None:
        lines = [
            "storePathRootDir=/tmp/evil",
            "storePathCommitLog=/tmp/evil",
            "brokerName=evil",
            "listenPort=1",
            "brokerConfigPath=/etc/passwd",
            "configBlackList=x",
            "rocketmqHome=$(touch /tmp/evil)",
            "noSuchSetting=1",
            "fileReservedTime=abc",
            "fileReservedTime=-5",
            "maxMessageSize=99999999999",
            "flushDiskType=SOMETIMES",
            "\0=\0",
            "=",
            "x" * 100_000,
        ]
        async with under_attack(victim), Attacker(victim.broker) as attacker:
            for line in lines:
                answer = await attacker.ask(RequestCode.UPDATE_BROKER_CONFIG, {}, line.encode())
                assert answer is not None
                assert answer.code != 0, line[:40]

    asyncio.run(scenario())


def test_invalid_name_server_settings_are_rejected(victim: Cluster) -> None:
    async def scenario() -> None:
        async with under_attack(victim), Attacker(victim.namesrv) as attacker:
            for line in (
                "kvConfigPath=/tmp/evil",
                "configStorePath=/tmp/evil",
                "rocketmqHome=/tmp/evil",
                "configBlackList=x",
                "nothing=1",
            ):
                answer = await attacker.ask(RequestCode.UPDATE_NAMESRV_CONFIG, {}, line.encode())
                assert answer is not None
                assert answer.code != 0, line

    asyncio.run(scenario())


def test_registration_that_decompresses_to_hundreds_of_megabytes_is_rejected(victim: Cluster) -> None:
    async def scenario() -> None:
        packer = zlib.compressobj(1)
        bomb = b"".join(packer.compress(bytes(2**20)) for _ in range(256)) + packer.flush()
        ext = valid_ext(RequestCode.REGISTER_BROKER, NAMES) | {"compressed": "true", "bodyCrc32": "0"}
        async with under_attack(victim, memory_mb=96), Attacker(victim.namesrv) as attacker:
            answer = await attacker.ask(RequestCode.REGISTER_BROKER, ext, bomb)
            assert answer is None or answer.code != 0

    asyncio.run(scenario())


def test_every_request_of_a_flood_is_answered(victim: Cluster) -> None:
    async def scenario() -> None:
        ext = valid_ext(RequestCode.SEND_MESSAGE, {**NAMES, "topic": "NoSuchTopic"})
        flood = b"".join(request(RequestCode.SEND_MESSAGE, ext, b"x" * 100, opaque=i + 1) for i in range(20_000))
        async with under_attack(victim, memory_mb=96), Attacker(victim.broker) as attacker:
            answers = await attacker.pour(flood)
            assert answers.count(b'"opaque"') == 20_000

    asyncio.run(scenario())
