"""Broken frames: random bytes, wrong lengths, invalid headers, frames that never end."""

from __future__ import annotations

import asyncio
import json
import random
import struct

import pytest

from firearrow.wire.codes import RequestCode
from tests.badinput.hostile import TIMEOUT_S, Attacker, frame, request, valid_ext
from tests.badinput.victim import GROUP, TOPIC, under_attack
from tests.conformance.servers import Cluster

NAMES = {"topic": TOPIC, "consumerGroup": GROUP, "group": GROUP, "producerGroup": "p"}


@pytest.fixture(params=["broker", "namesrv"])
def address(request: pytest.FixtureRequest, victim: Cluster) -> str:
    return str(getattr(victim, request.param))


def test_random_bytes_are_survived(victim: Cluster, address: str) -> None:
    async def scenario() -> None:
        rng = random.Random(1)
        async with under_attack(victim):
            for _ in range(200):
                async with Attacker(address) as attacker:
                    await attacker.pour(rng.randbytes(rng.choice((1, 3, 4, 5, 8, 20, 100, 3000, 70_000))))

    asyncio.run(scenario())


def test_random_bytes_behind_a_plausible_length_are_survived(victim: Cluster, address: str) -> None:
    async def scenario() -> None:
        rng = random.Random(2)
        async with under_attack(victim):
            for _ in range(200):
                junk = rng.randbytes(rng.randrange(4, 400))
                kind = rng.choice((0, 1, 2, 255))
                word = kind << 24 | rng.choice((0, 1, len(junk), rng.randrange(len(junk))))
                async with Attacker(address) as attacker:
                    await attacker.pour(frame(junk, header_word=word))

    asyncio.run(scenario())


@pytest.mark.parametrize("length", [0, 1, 3, 0x00FF_FFFF + 2, 0x7FFF_FFFF, 0x8000_0000, 0xFFFF_FFFF], ids=hex)
def test_impossible_lengths_close_the_connection(victim: Cluster, address: str, length: int) -> None:
    async def scenario() -> None:
        async with under_attack(victim, memory_mb=24), Attacker(address) as attacker:
            assert await attacker.is_closed_after(struct.pack(">I", length) + bytes(4000))

    asyncio.run(scenario())


@pytest.mark.parametrize("header_length", [0x00FF_FFFF, 1000, 0x0008_0001], ids=hex)
def test_a_header_longer_than_its_frame_closes_the_connection(victim: Cluster, address: str, header_length: int) -> None:
    async def scenario() -> None:
        async with under_attack(victim, memory_mb=24), Attacker(address) as attacker:
            assert await attacker.is_closed_after(frame(b'{"code":1}', header_word=header_length) + bytes(1000))

    asyncio.run(scenario())


BROKEN_HEADERS = {
    "empty": b"",
    "no JSON": b"{code:",
    "no object": b"[1,2,3]",
    "a string": b'"hello"',
    "null": b"null",
    "no code": b'{"opaque":1,"flag":0}',
    "text as code": b'{"code":"ten","opaque":1,"flag":0}',
    "float as code": b'{"code":10.5,"opaque":1,"flag":0}',
    "huge code": b'{"code":99999999999999999999,"opaque":1,"flag":0}',
    "text as opaque": b'{"code":10,"opaque":"x","flag":0}',
    "huge opaque": b'{"code":10,"opaque":99999999999,"flag":0}',
    "list as flag": b'{"code":10,"opaque":1,"flag":[]}',
    "list as ext": b'{"code":10,"opaque":1,"flag":0,"extFields":[]}',
    "text as ext": b'{"code":10,"opaque":1,"flag":0,"extFields":"x"}',
    "number as ext": b'{"code":10,"opaque":1,"flag":0,"extFields":1}',
    "invalid UTF-8": b'{"code":10,"opaque":1,"flag":0,"remark":"\xff\xfe"}',
    "lone surrogate": b'{"code":10,"opaque":1,"flag":0,"extFields":{"topic":"\\ud800"}}',
    "deep nesting": b'{"code":10,"opaque":1,"flag":0,"extFields":' + b'{"a":' * 20_000 + b"1" + b"}" * 20_001,
    "NUL bytes": b"\0" * 50,
}


@pytest.mark.parametrize("name", BROKEN_HEADERS)
def test_broken_headers_are_rejected(victim: Cluster, address: str, name: str) -> None:
    """The connection is closed or the request is answered with an error. The next connection is served."""

    async def scenario() -> None:
        async with under_attack(victim):
            async with Attacker(address) as attacker:
                answer = await attacker.pour(frame(BROKEN_HEADERS[name]))
                assert b'"code":0' not in answer
            async with Attacker(address) as attacker:
                assert await attacker.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "x"}) is not None

    asyncio.run(scenario())


def test_a_hundred_thousand_header_fields_are_rejected(victim: Cluster, address: str) -> None:
    async def scenario() -> None:
        fields = {f"field-{i}": "value" for i in range(100_000)}
        small = {f"f{i}": "" for i in range(30_000)}
        async with under_attack(victim, memory_mb=96), Attacker(address) as attacker:
            for ext in (fields, small):
                answer = await attacker.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": TOPIC, **ext})
                assert answer is None or answer.code != 0

    asyncio.run(scenario())


def test_a_hundred_thousand_fields_in_a_binary_header_are_rejected(victim: Cluster, address: str) -> None:
    async def scenario() -> None:
        entry = struct.pack(">h", 1) + b"k" + struct.pack(">i", 1) + b"v"
        ext = entry * 100_000
        header = struct.pack(">hbhiii", 105, 0, 479, 7, 0, 0) + struct.pack(">i", len(ext)) + ext
        async with under_attack(victim, memory_mb=96), Attacker(address) as attacker:
            answer = await attacker.ask_raw(frame(header, header_word=1 << 24 | len(header)), 7)
            assert answer is None or answer.code != 0

    asyncio.run(scenario())


@pytest.mark.parametrize("wrong", [-1, -(2**31), 2**31 - 1, 10_000])
def test_wrong_lengths_inside_a_binary_header_are_rejected(victim: Cluster, address: str, wrong: int) -> None:
    async def scenario() -> None:
        fixed = struct.pack(">hbhii", 105, 0, 479, 7, 0)
        remark = fixed + struct.pack(">i", wrong) + b"abc"
        ext = fixed + struct.pack(">ii", 0, wrong) + b"abc"
        key = fixed + struct.pack(">ii", 0, 6) + struct.pack(">h", max(-(2**15), min(wrong, 2**15 - 1))) + b"abcd"
        value = fixed + struct.pack(">ii", 0, 10) + struct.pack(">h", 1) + b"k" + struct.pack(">i", wrong) + b"abc"
        async with under_attack(victim, memory_mb=24):
            for header in (remark, ext, key, value):
                async with Attacker(address) as attacker:
                    assert b'"code":0' not in await attacker.pour(frame(header, header_word=1 << 24 | len(header)))

    asyncio.run(scenario())


def test_truncated_frames_are_ignored(victim: Cluster, address: str) -> None:
    """A valid request is truncated after each of its bytes, followed by the end of the connection."""

    async def scenario() -> None:
        whole = request(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "x" * 20})
        async with under_attack(victim):
            for cut in range(len(whole)):
                async with Attacker(address) as attacker:
                    assert await attacker.pour(whole[:cut]) == b""

    asyncio.run(scenario())


def test_unfinished_frames_do_not_allocate_their_announced_length(victim: Cluster, address: str) -> None:
    async def scenario() -> None:
        announcement = struct.pack(">II", 16_000_000, 100)
        async with under_attack(victim, memory_mb=48) as attack:
            links = [await asyncio.open_connection(*address.rsplit(":", 1)) for _ in range(200)]
            for _, writer in links:
                writer.write(announcement + b"x" * 1000)
            await attack.honest.completes(20)
            for _, writer in links:
                writer.close()

    asyncio.run(scenario())


def test_frame_sent_byte_by_byte_is_answered(victim: Cluster, address: str) -> None:
    async def scenario() -> None:
        whole = request(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "nothing"}, opaque=3)
        async with under_attack(victim) as attack:
            reader, writer = await asyncio.open_connection(*address.rsplit(":", 1))
            for at, byte in enumerate(whole):
                writer.write(bytes([byte]))
                await writer.drain()
                if at % 8 == 0:
                    await attack.honest.completes(1)
            (length,) = struct.unpack(">I", await asyncio.wait_for(reader.readexactly(4), TIMEOUT_S))
            answer = await asyncio.wait_for(reader.readexactly(length), TIMEOUT_S)
            assert b'"opaque":3' in answer
            writer.close()

    asyncio.run(scenario())


def test_mutated_requests_are_survived(victim: Cluster, address: str) -> None:
    """Requests that are almost valid: single bytes changed, some bytes removed, two requests spliced."""

    async def scenario() -> None:
        rng = random.Random(3)
        codes = [
            RequestCode.PULL_MESSAGE,
            RequestCode.QUERY_MESSAGE,
            RequestCode.SEARCH_OFFSET_BY_TIMESTAMP,
            RequestCode.GET_CONSUME_STATS,
            RequestCode.GET_ROUTEINFO_BY_TOPIC,
            RequestCode.QUERY_CONSUME_QUEUE,
            RequestCode.HEART_BEAT,
            RequestCode.LOCK_BATCH_MQ,
        ]
        body = json.dumps({"clientID": "c", "consumerGroup": GROUP, "mqSet": [{"topic": TOPIC, "queueId": 0}]}).encode()
        async with under_attack(victim):
            for _ in range(300):
                data = bytearray(request(rng.choice(codes), valid_ext(rng.choice(codes), NAMES), body))
                for _ in range(rng.randrange(1, 4)):
                    data[rng.randrange(len(data))] = rng.randrange(256)
                if rng.random() < 0.3:
                    cut = rng.randrange(len(data))
                    del data[cut : cut + rng.randrange(20)]
                async with Attacker(address) as attacker:
                    await attacker.pour(bytes(data) + request(RequestCode.GET_MAX_OFFSET, {"topic": TOPIC, "queueId": "0"}))

    asyncio.run(scenario())


def test_unsolicited_responses_are_ignored(victim: Cluster, address: str) -> None:
    async def scenario() -> None:
        async with under_attack(victim), Attacker(address) as attacker:
            for opaque in range(200):
                answer = await attacker.ask_raw(
                    request(0, {"offset": "1"}, b"body", opaque=opaque, flag=1)
                    + request(105, {"topic": "x"}, opaque=10_000 + opaque),
                    10_000 + opaque,
                )
                assert answer is not None

    asyncio.run(scenario())


def test_client_that_does_not_read_its_responses_delays_only_itself(victim: Cluster) -> None:
    """The responses of a hundred thousand pulls wait in the client's buffers, not in the server's memory."""

    async def scenario() -> None:
        pull = valid_ext(RequestCode.PULL_MESSAGE, NAMES) | {"maxMsgNums": "32", "sysFlag": "4"}
        async with under_attack(victim, memory_mb=128) as attack:
            links = []
            for _ in range(5):
                reader, writer = await asyncio.open_connection(*victim.broker.rsplit(":", 1), limit=1024)
                writer.write(b"".join(request(RequestCode.PULL_MESSAGE, pull, opaque=i) for i in range(20_000)))
                links.append((reader, writer))
            await attack.honest.completes(50)
            for _, writer in links:
                writer.close()

    asyncio.run(scenario())
