"""The Python producer against our servers and Apache's: every way to send, every message kind."""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from datetime import UTC, datetime, timedelta

import pytest

import firearrow as fa
from firearrow.wire import record
from tests.conformance import rawcall
from tests.conformance.client_matrix import RecordingListener, World, story
from tests.conformance.conftest import fresh
from tests.support.waiting import until

COMPRESSED = {"zlib": 0x301, "lz4": 0x101, "zstd": 0x201}
BUSY_MS = 3_000  # allowance for a busy machine
OWN = {"größe": "groß", "n": "1", "long": "x" * 1_000}


@pytest.mark.everywhere
@story
async def test_a_message_is_stored_as_it_was_given(world: World) -> None:
    topic = world.topic()
    message = fa.Message(topic, "zwölf".encode(), tags="neu", keys=["A1", "B2"], properties=OWN, flag=7)
    before_ms = int(time.time() * 1000)
    async with world.producer() as producer:
        result = await producer.send(message)
    assert result.status is fa.SendStatus.OK
    (stored,) = await world.stored(topic, 1)
    assert (stored.topic, stored.body, stored.tags, stored.keys, stored.flag) == (topic, message.body, "neu", ("A1", "B2"), 7)
    assert {name: stored.properties.get(name) for name in OWN} == OWN
    assert (stored.msg_id, stored.offset_msg_id) == (result.msg_id, result.offset_msg_id)
    assert (stored.queue, stored.queue_offset) == (result.queue, result.queue_offset)
    assert (stored.reconsume_times, stored.sys_flag & 0x1) == (0, 0)
    assert before_ms <= stored.born_ms <= stored.store_ms <= int(time.time() * 1000)
    assert stored.born_host.startswith("127.0.0.1:")


@story
async def test_results_say_where_each_message_is(world: World) -> None:
    topic = world.topic()
    async with world.producer() as producer:
        results = [await producer.send(fa.Message(topic, str(number).encode())) for number in range(12)]
    assert sorted(result.queue_id for result in results) == [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3], "round robin"
    stored = {(message.queue_id, message.queue_offset): message for message in await world.stored(topic, 12)}
    for number, result in enumerate(results):
        assert stored[result.queue_id, result.queue_offset].body == str(number).encode()


@pytest.mark.everywhere
@story
async def test_many_messages_are_under_way_at_once(world: World) -> None:
    topic = world.topic()
    bodies = [f"{number}".encode() for number in range(500)]
    async with world.producer() as producer:
        results = await asyncio.gather(*(producer.send_nowait(fa.Message(topic, body)) for body in bodies))
    assert {result.status for result in results} == {fa.SendStatus.OK}
    assert len({result.msg_id for result in results}) == 500
    stored = await world.stored(topic, 500)
    assert sorted(message.body for message in stored) == sorted(bodies)
    for _, queue in itertools.groupby(stored, key=lambda message: message.queue_id):
        offsets = [message.queue_offset for message in queue]
        assert offsets == list(range(len(offsets)))


@story
async def test_one_way(world: World) -> None:
    topic = world.topic()
    async with world.producer() as producer:
        for number in range(20):
            await producer.send_oneway(fa.Message(topic, str(number).encode(), tags="t", keys="k"))
        await producer.send_oneway(fa.Message(topic, b"in order"), sharding_key="s")
    stored = {message.body: message for message in await world.stored(topic, 21)}
    assert set(stored) == {*(str(number).encode() for number in range(20)), b"in order"}
    assert (stored[b"7"].tags, stored[b"7"].keys) == ("t", ("k",))
    assert stored[b"in order"].get("__SHARDINGKEY") == "s"


@pytest.mark.everywhere
@story
async def test_a_batch(world: World) -> None:
    topic = world.topic()
    messages = [
        fa.Message(topic, f"{n}".encode(), tags=f"t{n}", keys=[f"k{n}"], properties={"n": str(n)}, flag=n) for n in range(10)
    ]
    async with world.producer() as producer:
        results = await producer.send_batch(messages)
    assert [result.queue_offset for result in results] == list(range(10))
    stored = await world.stored(topic, 10)
    assert [message.body for message in stored] == [message.body for message in messages]
    assert [message.msg_id for message in stored] == [result.msg_id for result in results]
    assert [(m.tags, m.keys, m.properties["n"], m.flag) for m in stored] == [(f"t{n}", (f"k{n}",), f"{n}", n) for n in range(10)]
    assert len({message.queue_id for message in stored}) == 1


@story
async def test_a_batch_that_is_too_large_for_one_request_is_split(world: World) -> None:
    topic = world.topic()
    bodies = [bytes([number]) * 100_000 for number in range(60)]  # 6 MB
    async with world.producer() as producer:
        results = await producer.send_batch([fa.Message(topic, body) for body in bodies])
    assert len({(result.queue_id, result.queue_offset) for result in results}) == 60
    stored = {(message.queue_id, message.queue_offset): message.body for message in await world.stored(topic, 60)}
    assert [stored[result.queue_id, result.queue_offset] for result in results] == bodies


@pytest.mark.everywhere
@story
async def test_messages_of_a_sharding_key_stay_in_order(world: World) -> None:
    topic = world.topic(queues=8)
    async with world.producer() as producer:
        for number in range(50):
            await producer.send(fa.Message(topic, f"{number}".encode()), sharding_key=f"order-{number % 5}")
    by_key: dict[str | None, list[fa.ReceivedMessage]] = {}
    for message in await world.stored(topic, 50):
        by_key.setdefault(message.get("__SHARDINGKEY"), []).append(message)
    assert set(by_key) == {f"order-{number}" for number in range(5)}
    for key, messages in by_key.items():
        assert len({message.queue_id for message in messages}) == 1
        assert [int(m.body) for m in messages] == [n for n in range(50) if f"order-{n % 5}" == key]


@story
async def test_the_queue_is_chosen_by_the_caller(world: World) -> None:
    topic = world.topic()
    async with world.producer() as producer:
        queues = await producer.queues(topic)
        assert [queue.queue_id for queue in queues] == [0, 1, 2, 3]
        given = await producer.send(fa.Message(topic, b"given"), queue=queues[3])
        selected = await producer.send(fa.Message(topic, b"selected"), selector=lambda queues, message: queues[2])
        batch = await producer.send_batch([fa.Message(topic, b"batch")], queue=queues[1])
    assert (given.queue_id, selected.queue_id, batch[0].queue_id) == (3, 2, 1)


@story
async def test_a_topic_is_made_by_its_first_message(world: World) -> None:
    topic = fresh("Made")
    async with world.producer() as producer:
        first = await producer.send(fa.Message(topic, b"1"))
        assert first.status is fa.SendStatus.OK
        await until(lambda: rawcall.has_route(world.cluster.namesrv, topic), "the route")
        await producer.send(fa.Message(topic, b"2"))
    assert {message.body for message in await world.stored(topic, 2)} == {b"1", b"2"}


@pytest.mark.everywhere
@story
async def test_a_delay_level(world: World) -> None:
    topic = world.topic()
    message = fa.Message(topic, b"later", tags="t", keys=["k"], properties=OWN)
    async with world.producer() as producer:
        result = await producer.send(message, delay_level=1)
        both = await producer.send(fa.Message(topic, b"in seconds"), delay=1)  # 4.9 has a level for it, 5.x a timer
    assert result.status is both.status is fa.SendStatus.OK
    stored = {message.body: message for message in await world.stored(topic, 2)}
    later = stored[b"later"]
    assert 1_000 <= later.store_ms - later.born_ms < 1_000 + BUSY_MS
    assert (later.tags, later.keys, later.msg_id) == ("t", ("k",), result.msg_id)
    assert {name: later.properties.get(name) for name in OWN} == OWN
    assert 990 <= stored[b"in seconds"].store_ms - stored[b"in seconds"].born_ms < 2_000 + BUSY_MS


@story
async def test_any_time(world: World) -> None:
    world.needs("timers")
    topic = world.topic()
    async with world.producer() as producer:
        at = datetime.now(UTC) + timedelta(seconds=2.5)
        await producer.send(fa.Message(topic, b"after", tags="t"), delay=timedelta(seconds=1.7))
        await producer.send(fa.Message(topic, b"at", keys=["k"]), deliver_at=at)
        await producer.send(fa.Message(topic, b"past"), deliver_at=at - timedelta(hours=1))
    stored = {message.body: message for message in await world.stored(topic, 3)}
    assert stored[b"after"].store_ms - stored[b"after"].born_ms >= 1_690
    assert stored[b"at"].store_ms >= at.timestamp() * 1000 - 10
    assert max(m.store_ms - m.born_ms for m in stored.values()) < 2_500 + 1_000 + BUSY_MS
    assert stored[b"past"].store_ms - stored[b"past"].born_ms < 1_000 + BUSY_MS
    assert (stored[b"after"].tags, stored[b"at"].keys, {m.topic for m in stored.values()}) == ("t", ("k",), {topic})


@story
async def test_a_time_that_an_old_broker_does_not_know_is_refused(world: World) -> None:
    if world.cluster.kind != "apache-4.9":
        pytest.skip("only brokers before 5.0 have levels and nothing else")
    topic = world.topic()
    async with world.producer() as producer:
        for when in ({"delay": 1.7}, {"deliver_at": datetime.now(UTC) + timedelta(seconds=5)}):
            with pytest.raises(fa.InvalidMessageError, match=r"older than 5\.0"):
                await producer.send(fa.Message(topic, b"would come at once"), **when)
    await world.stored(topic, 0, timeout_s=1)


@story
async def test_a_message_is_recalled(world: World) -> None:
    world.needs("recall")
    topic = world.topic()
    async with world.producer() as producer:
        taken = await producer.send(fa.Message(topic, b"taken back"), delay=3)
        await producer.send(fa.Message(topic, b"left"), delay=3)
        assert await producer.recall(taken) == taken.msg_id
    (left,) = await world.stored(topic, 1)
    assert left.body == b"left"


@pytest.mark.everywhere
@story
async def test_transactions(world: World) -> None:
    topic = world.topic()
    state = fa.LocalTransactionState
    outcomes = {
        b"kept": state.COMMIT,
        b"dropped": state.ROLLBACK,
        b"asked, kept": state.UNKNOWN,
        b"asked, dropped": state.UNKNOWN,
    }
    asked: list[fa.ReceivedMessage] = []

    def execute(message: fa.Message, argument: object) -> fa.LocalTransactionState:
        assert argument == "order"
        if message.body == b"broken":
            raise LookupError("the table is gone")
        return outcomes[message.body]

    def check(message: fa.ReceivedMessage) -> fa.LocalTransactionState:
        asked.append(message)
        return state.ROLLBACK if message.body == b"asked, dropped" else state.COMMIT

    async with world.transaction_producer(execute=execute, check=check) as producer:
        for body, outcome in outcomes.items():
            message = fa.Message(topic, body, tags="t", keys=["k"], properties=OWN)
            result = await producer.send_in_transaction(message, "order")
            assert (result.state, result.result.status) == (outcome, fa.SendStatus.OK)
        with pytest.raises(LookupError, match="the table is gone"):
            await producer.send_in_transaction(fa.Message(topic, b"broken"), "order")
        await until(lambda: {m.body for m in asked} == {b"asked, kept", b"asked, dropped", b"broken"}, "the broker asks")
        stored = {message.body: message for message in await world.stored(topic, 3)}
    assert set(stored) == {b"kept", b"asked, kept", b"broken"}
    kept = stored[b"kept"]
    assert (kept.tags, kept.keys, {name: kept.properties.get(name) for name in OWN}) == ("t", ("k",), OWN)
    assert {(message.topic, message.tags) for message in asked if message.body != b"broken"} == {(topic, "t")}


@pytest.mark.everywhere
@story
async def test_request_and_reply(world: World) -> None:
    topic = world.topic()
    async with world.producer() as answering, world.producer() as asking:
        seen = RecordingListener()

        async def answer() -> None:
            (request,) = await until_one(seen)
            result = await answering.reply(request, b"re: " + request.body)
            assert result.status is fa.SendStatus.OK

        async with world.push(topic, seen):
            answers = asyncio.create_task(answer())
            reply = await asking.request(fa.Message(topic, b"how much?", tags="q"), timeout=60)
            await answers
            assert reply.body == b"re: how much?"
        with pytest.raises(fa.RequestTimeout):
            await asking.request(fa.Message(topic, b"nobody listens"), timeout=0.5)


async def until_one(seen: RecordingListener) -> list[fa.ReceivedMessage]:
    await seen.wait(1)
    return seen.messages[:1]


@pytest.mark.everywhere
@pytest.mark.parametrize("compression", list(COMPRESSED))
@story
async def test_large_bodies_travel_compressed(world: World, compression: str) -> None:
    topic = world.topic()
    large = b"all work and no play " * 5_000
    noise = random.Random(5).randbytes(20_000)
    async with world.producer(compression=compression) as producer:
        await producer.send(fa.Message(topic, large, tags="large"))
        await producer.send(fa.Message(topic, noise, tags="noise"))
        await producer.send(fa.Message(topic, b"small", tags="small"))
    stored = {message.tags: message for message in await world.stored(topic, 3)}
    assert stored["large"].body == large
    assert stored["large"].sys_flag & 0x701 == COMPRESSED[compression]
    assert stored["large"].store_size < len(large) / 10
    assert (stored["noise"].body, stored["small"].body) == (noise, b"small")
    assert stored["small"].sys_flag & 0x1 == 0


@pytest.mark.everywhere
@story
async def test_what_was_sent_is_found(world: World) -> None:
    topic = world.topic()
    async with world.producer() as producer:
        single = await producer.send(fa.Message(topic, b"single", keys=["order-7", "customer-1"]))
        batch = await producer.send_batch([fa.Message(topic, b"a", keys=["order-8"]), fa.Message(topic, b"b", keys="order-9")])
    await until(lambda: world.query(topic, "order-9"), "the index")
    assert [found.body for found in world.query(topic, "order-7")] == [b"single"]
    assert [found.body for found in world.query(topic, "customer-1")] == [b"single"]
    assert [found.body for found in world.query(topic, "order-8")] == [b"a"]
    assert world.query(topic, "order-77") == []
    assert [found.body for found in world.query(topic, single.msg_id, _UNIQUE_KEY_QUERY="true")] == [b"single"]
    assert [found.body for found in world.query(topic, batch[1].msg_id, _UNIQUE_KEY_QUERY="true")] == [b"b"]
    answer, body = rawcall.call(world.cluster.broker, 33, {"offset": str(int(single.offset_msg_id[16:], 16)), "topic": topic})
    assert (answer["code"], [found.body for found in record.decode_all(body)]) == (0, [b"single"])


@story
async def test_what_cannot_be_sent_is_an_error(world: World) -> None:
    topic, closed = world.topic(), world.topic(perm=4)
    async with world.producer(retries=0) as producer:
        with pytest.raises(fa.InvalidMessageError):
            await producer.send(fa.Message(topic, b""))
        with pytest.raises(fa.InvalidMessageError):
            await producer.send(fa.Message(topic, bytes(4 * 1024 * 1024 + 1)))
        with pytest.raises(fa.ClientError, match="write permission"):
            await producer.send(fa.Message(closed, b"nobody may write here"))
        assert (await producer.send(fa.Message(topic, b"still well"))).status is fa.SendStatus.OK


@story
async def test_a_namespace_keeps_topics_and_groups_apart(world: World) -> None:
    name, group, seen, elsewhere = fresh("Shared"), fresh("g"), RecordingListener(), RecordingListener()
    async with world.producer(namespace="one") as first, world.producer(namespace="two") as second:
        await first.send(fa.Message(name, b"of one"))
        await second.send(fa.Message(name, b"of two"))
        await until(lambda: rawcall.has_route(world.cluster.namesrv, f"one%{name}"), "the topic as brokers call it")
        async with (
            world.push(name, seen, group=group, namespace="one"),
            world.push(name, elsewhere, group=group, namespace="two"),
        ):
            assert await seen.wait(1) == [b"of one"]
            assert await elsewhere.wait(1) == [b"of two"]
    assert seen.messages[0].topic == name
