"""Messages between our client and the Java clients, both ways: every kind, every property, compressed bodies.

Both sides read every message and must agree on all its fields.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import firearrow as fa
from tests.conformance import client_matrix, rawcall, servers
from tests.conformance.agent import Agent
from tests.conformance.client_matrix import RecordingListener
from tests.conformance.conftest import fresh, topic_on
from tests.conformance.servers import Cluster
from tests.support.waiting import wait_until

PATIENCE_S = 75.0 if servers.TARGET == "apache" else 60.0
OWN = {"größe": "groß", "n": "1", "japanese": "日本語", "long": "x" * 2_000}
LARGE = "all work and no play " * 5_000
NEVER = fa.LocalTransactionState.UNKNOWN
# Properties that the Java client adds on reception.
ADDED_BY_JAVA = {"MIN_OFFSET", "MAX_OFFSET", "CONSUME_START_TIME"}


@pytest.fixture(scope="module")
def asking(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A broker with a short transaction check interval."""
    running = servers.start(tmp_path_factory.mktemp("interop"), client_matrix.SETTINGS)
    yield running
    running.dispose()


@pytest.fixture
def topic(asking: Cluster) -> str:
    return topic_on(asking)


@pytest.fixture
def producer(asking: Cluster) -> Iterator[fa.Producer]:
    with fa.Producer(asking.namesrv, group=fresh("pg"), send_timeout=60) as ours:
        yield ours


@pytest.fixture
def java_producer(java: Agent, asking: Cluster) -> Iterator[str]:
    name = fresh("producer")
    java.call("producer.start", name=name, namesrv=asking.namesrv)
    yield name
    java.submit("producer.stop", name=name)


def read_by_java(java: Agent, cluster: Cluster, topic: str, count: int) -> dict[str, dict[str, Any]]:
    """Return the messages of a topic by id once there are `count`."""
    name = fresh("puller")
    java.call("pull.start", name=name, group=name, namesrv=cluster.namesrv)
    found: list[dict[str, Any]] = []

    def all_there() -> bool:
        found[:] = java.call("pull.all", name=name, topic=topic)
        return len(found) >= count

    try:
        wait_until(all_there, "Java reads all", PATIENCE_S)
    except TimeoutError:
        raise AssertionError(f"Java reads {[one.get('body') for one in found]} instead of {count} messages") from None
    finally:
        java.submit("pull.stop", name=name)
    assert len(found) == count, [one.get("body") for one in found]
    return {one["msgId"]: one for one in found}


def read_by_us(cluster: Cluster, topic: str, count: int) -> dict[str, fa.ReceivedMessage]:
    messages: list[fa.ReceivedMessage] = []
    deadline = time.monotonic() + PATIENCE_S
    with fa.PullConsumer(cluster.namesrv, group=fresh("g")) as consumer:
        consumer.assign(consumer.queues(topic))
        consumer.seek_all("earliest")
        while len(messages) < count and time.monotonic() < deadline:
            messages += consumer.poll(0.5)
    assert len(messages) == count, messages
    return {message.msg_id: message for message in messages}


def assert_alike(java: Agent, cluster: Cluster, topic: str, count: int) -> dict[str, fa.ReceivedMessage]:
    """Assert that Java and our client read equal fields and properties. Return the messages by the first word of their body."""
    theirs, ours = read_by_java(java, cluster, topic, count), read_by_us(cluster, topic, count)
    assert theirs.keys() == ours.keys()
    for msg_id, message in ours.items():
        they = theirs[msg_id]
        seen_by_java = {name: value for name, value in they["properties"].items() if name not in ADDED_BY_JAVA}
        assert message.all_properties == seen_by_java
        assert (message.topic, message.queue_id, message.queue_offset) == (they["topic"], they["queueId"], they["queueOffset"])
        assert (message.tags, " ".join(message.keys)) == (they.get("tags"), they.get("keys") or "")
        # The 5.x client clears the compression flag after decompressing the body.
        assert (message.flag, message.sys_flag & ~0x1) == (they["flag"], they["sysFlag"] & ~0x1)
        assert message.reconsume_times == they["reconsumeTimes"]
        assert (message.born_ms, message.store_ms) == (they["bornTimestamp"], they["storeTimestamp"])
        assert message.born_host.rpartition(":")[0] == they["bornHost"]
        assert message.offset_msg_id == they["offsetMsgId"]
        assert (message.commit_log_offset, message.store_size) == (they["commitLogOffset"], they["storeSize"])
        assert (len(message.body), hashlib.sha256(message.body).hexdigest()) == (they["bodyLength"], they["sha256"])
    return {message.body.decode().split()[0]: message for message in ours.values()}


def has_timers(java: Agent) -> bool:
    return not java.version.startswith("4.")


# Every kind, every property.


def test_what_we_send_java_reads(java: Agent, asking: Cluster, topic: str, producer: fa.Producer) -> None:
    def message(body: str, **fields: Any) -> fa.Message:
        return fa.Message(topic, body.encode(), **fields)

    full = {"tags": "täg", "keys": ["k1", "k2"], "properties": OWN, "flag": 9, "wait_store": False}
    sent = producer.send(message("sync", **full))
    producer.send_nowait(message("async", **full)).result(60)
    producer.send_oneway(message("oneway", **full))
    producer.send(message("bare"))
    producer.send(message("sharded", **full), sharding_key="order-7")
    producer.send_batch([message("batch-1", **full), message("batch-2", wait_store=False)])
    producer.send(message("level", **full), delay_level=1)
    producer.send(message("seconds", **full), delay=1)
    producer.send(message("moment", **full), deliver_at=datetime.now(UTC) + timedelta(seconds=1.3))
    producer.send(message(LARGE, **full))
    with pytest.raises(fa.RequestTimeout):
        producer.request(message("request", **full), timeout=0.3)
    execute = {"committed": fa.LocalTransactionState.COMMIT, "dropped": fa.LocalTransactionState.ROLLBACK}
    with fa.TransactionProducer(
        asking.namesrv, group=fresh("pg"), execute=lambda half, state: execute[half.body.decode()], check=lambda half: NEVER
    ) as transactional:
        transactional.send_in_transaction(message("committed", **full))
        transactional.send_in_transaction(message("dropped", **full))

    found = assert_alike(java, asking, topic, 13)

    everything = {"sync", "async", "oneway", "bare", "sharded", "batch-1", "batch-2", "level", "seconds", "moment", "all"}
    assert found.keys() == everything | {"request", "committed"}
    for name in found.keys() - {"bare", "batch-2"}:
        one = found[name]
        assert (one.tags, one.keys, {key: one.properties.get(key) for key in OWN}) == ("täg", ("k1", "k2"), OWN), name
        assert one.flag == 9, name
    assert found["bare"].tags is None
    assert found["bare"].keys == ()
    assert found["sharded"].get("__SHARDINGKEY") == "order-7"
    assert found["all"].sys_flag & 0x1
    assert found["request"].get("CORRELATION_ID")
    # Java finds it by the id and by the keys.
    name = fresh("puller")
    java.call("pull.start", name=name, group=name, namesrv=asking.namesrv)
    assert java.call("pull.view", name=name, topic=topic, msgId=sent.msg_id)["body"] == "sync"
    assert java.call("pull.view", name=name, topic=topic, msgId=sent.offset_msg_id)["body"] == "sync"
    assert "sync" in {one.get("body") for one in java.call("pull.query", name=name, topic=topic, key="k2")}
    java.submit("pull.stop", name=name)


def test_what_java_sends_we_read(java: Agent, asking: Cluster, topic: str, java_producer: str) -> None:
    full = {"tags": "täg", "keys": "k1 k2", "properties": OWN, "flag": 9, "waitStoreMsgOk": False}

    def send(*messages: dict[str, Any], mode: str = "sync") -> None:
        results = java.call("producer.send", name=java_producer, topic=topic, mode=mode, messages=list(messages))
        assert mode != "sync" or all(result["status"] == "SEND_OK" for result in results), results

    send({"body": "sync", **full}, {"body": "bare"}, {"body": "sharded", "shard": "order-7", **full}, {"body": LARGE, **full})
    send({"body": "level", "delayLevel": 1, **full})
    send({"body": "async", **full}, mode="async")
    send({"body": "oneway", **full}, mode="oneway")
    send({"body": "batch-1", **full}, {"body": "batch-2", "waitStoreMsgOk": False}, mode="batch")
    asker = fresh("requester")
    java.call("requester.start", name=asker, group=asker, namesrv=asking.namesrv)
    java.call("requester.ask", name=asker, topic=topic, timeoutMs=500, messages=[{"body": "request", **full}])
    java.submit("requester.stop", name=asker)
    transactional = fresh("transactional")
    java.call("tran.start", name=transactional, group=transactional, namesrv=asking.namesrv)
    halves = [{"body": "committed", "local": "commit", **full}, {"body": "dropped", "local": "rollback", **full}]
    java.call("tran.send", name=transactional, topic=topic, messages=halves)
    java.submit("tran.stop", name=transactional)
    timed: set[str] = set()
    if has_timers(java):
        timed = {"seconds", "moment"}
        timer = fresh("timer")
        java.call("timer.start", name=timer, namesrv=asking.namesrv)
        at = int(time.time() * 1000) + 1_300
        messages = [{"body": "seconds", "setDelayTimeSec": 1, **full}, {"body": "moment", "setDeliverTimeMs": at, **full}]
        java.call("timer.send", name=timer, topic=topic, messages=messages)
        java.submit("timer.stop", name=timer)

    found = assert_alike(java, asking, topic, 11 + len(timed))

    plain = {"sync", "async", "oneway", "bare", "sharded", "batch-1", "batch-2", "level", "all", "request", "committed"}
    assert found.keys() == plain | timed
    for name in found.keys() - {"bare", "batch-2"}:
        one = found[name]
        assert (one.tags, one.keys, {key: one.properties.get(key) for key in OWN}) == ("täg", ("k1", "k2"), OWN), name
        assert one.flag == 9, name
    assert found["all"].sys_flag & 0x1


# Compressed bodies.


@pytest.mark.parametrize("compression", ["zlib", "lz4", "zstd"])
def test_bodies_that_we_compress(java: Agent, asking: Cluster, topic: str, compression: str) -> None:
    if compression != "zlib" and not has_timers(java):
        pytest.skip(f"Java's client {java.version} reads no {compression}: it came with 5.0")
    with fa.Producer(asking.namesrv, group=fresh("pg"), compression=compression) as producer:
        producer.send(fa.Message(topic, LARGE.encode(), tags="t", properties=OWN))
    (found,) = assert_alike(java, asking, topic, 1).values()
    assert found.body == LARGE.encode()
    assert found.sys_flag & 0x1
    assert found.store_size < len(LARGE) / 10


@pytest.mark.parametrize("compression", ["ZLIB", "LZ4", "ZSTD"])
def test_bodies_that_java_compresses(java: Agent, asking: Cluster, topic: str, compression: str) -> None:
    options: dict[str, Any] = {"compression": compression} if has_timers(java) else {}
    if compression != "ZLIB" and not options:
        pytest.skip(f"Java's client {java.version} compresses with zlib only")
    name = fresh("producer")
    java.call("producer.start", name=name, namesrv=asking.namesrv, **options)
    java.call("producer.send", name=name, topic=topic, messages=[{"body": LARGE, "tags": "t", "properties": OWN}])
    java.submit("producer.stop", name=name)
    (found,) = assert_alike(java, asking, topic, 1).values()
    assert found.body == LARGE.encode()
    kind = {"ZLIB": 0x300, "LZ4": 0x100, "ZSTD": 0x200}[compression]
    assert found.sys_flag & 0x1
    assert found.sys_flag & 0x700 in ({kind} if options else {0, kind})


# Requests and replies.


def test_we_ask_and_java_answers(java: Agent, asking: Cluster, topic: str, producer: fa.Producer) -> None:
    name = fresh("replier")
    java.call("replier.start", name=name, group=name, topic=topic, namesrv=asking.namesrv)
    reply = producer.request(fa.Message(topic, b"how much?"), timeout=60)
    assert reply.body == b"re:how much?"
    (result,) = java.call("replier.results", name=name, count=1)
    assert result["sent"]["status"] == "SEND_OK"
    java.submit("replier.stop", name=name)


def test_java_asks_and_we_answer(java: Agent, asking: Cluster, topic: str, producer: fa.Producer) -> None:
    asker = fresh("requester")
    java.call("requester.start", name=asker, group=asker, namesrv=asking.namesrv)

    def answer(message: fa.ReceivedMessage) -> None:
        producer.reply(message, b"re:" + message.body)

    with fa.PushConsumer(asking.namesrv, group=fresh("g"), subscribe={topic: "*"}, listener=answer, start_from="earliest"):
        asked = [{"body": "how much?"}, {"body": LARGE}]
        answers = java.call("requester.ask", name=asker, topic=topic, timeoutMs=60_000, messages=asked)
    assert [one.get("body") for one in answers] == ["re:how much?", "re:" + LARGE], answers
    java.submit("requester.stop", name=asker)


# Transactions of one producer group.


def test_java_answers_for_our_transaction(java: Agent, asking: Cluster, topic: str) -> None:
    group, name = fresh("pg"), fresh("transactional")
    with fa.TransactionProducer(
        asking.namesrv, group=group, execute=lambda half, argument: NEVER, check=lambda half: NEVER
    ) as ours:
        ours.send_in_transaction(fa.Message(topic, b"left open", tags="t", properties=OWN))
    java.call("tran.start", name=name, group=group, namesrv=asking.namesrv, heartbeatMs=1_000)
    java.call("tran.answer", name=name, answer="commit")
    # The 5.x client sends heartbeats only to brokers of topics it has sent to.
    java.call("tran.send", name=name, topic=topic, messages=[{"body": "hello", "local": "rollback"}])
    (found,) = assert_alike(java, asking, topic, 1).values()
    assert (found.body, found.tags, found.properties["größe"]) == (b"left open", "t", "groß")
    assert java.call("tran.checks", name=name)[0]["body"] == "left open"
    java.submit("tran.stop", name=name)


def test_we_answer_for_javas_transaction(java: Agent, asking: Cluster, topic: str) -> None:
    group, name = fresh("pg"), fresh("transactional")
    java.call("tran.start", name=name, group=group, namesrv=asking.namesrv)
    half = {"body": "left open", "local": "unknown", "tags": "t", "properties": OWN}
    java.call("tran.send", name=name, topic=topic, messages=[half])
    java.call("tran.stop", name=name)
    asked: list[fa.ReceivedMessage] = []

    def check(half: fa.ReceivedMessage) -> fa.LocalTransactionState:
        asked.append(half)
        return fa.LocalTransactionState.COMMIT

    with fa.TransactionProducer(asking.namesrv, group=group, execute=lambda half, argument: NEVER, check=check) as ours:
        ours.queues(topic)  # a broker checks with producers whose heartbeat it has received
        (found,) = assert_alike(java, asking, topic, 1).values()
    assert (found.body, found.tags, asked[0].body, asked[0].topic) == (b"left open", "t", b"left open", topic)


# Messages sent back by one client are retried by the other.


def test_what_java_gives_back_we_consume_again(java: Agent, asking: Cluster, topic: str, producer: fa.Producer) -> None:
    group, name, seen = fresh("g"), fresh("member"), RecordingListener()
    fail = [{"body": "again", "times": 1_000}]
    how: dict[str, Any] = {
        "fail": fail,
        "delayLevel": 1,
        "pollNameServerMs": 1_000,
    }  # it discovers the route of its retry topic soon
    java.call("push.start", name=name, namesrv=asking.namesrv, group=group, topics={topic: "*"}, **how)
    sent = producer.send(fa.Message(topic, b"again", tags="t", keys=["k"], properties=OWN, flag=9))
    wait_until(lambda: max_offset(asking, f"%RETRY%{group}") == 1, "it was given back", PATIENCE_S)
    java.call("push.stop", name=name)
    with fa.PushConsumer(asking.namesrv, group=group, subscribe={topic: "*"}, listener=seen.take, route_interval=1):
        wait_until(lambda: bool(seen.messages), "we have it", PATIENCE_S)
    (message,) = seen.messages
    assert (message.body, message.topic, message.msg_id, message.flag) == (b"again", topic, sent.msg_id, 9)
    assert (message.tags, message.keys, {key: message.properties.get(key) for key in OWN}) == ("t", ("k",), OWN)
    assert message.reconsume_times >= 1


def test_our_dead_letters_are_javas(java: Agent, asking: Cluster, topic: str, producer: fa.Producer) -> None:
    group, seen = fresh("g"), RecordingListener(refuse={b"never": 1_000})
    sent = producer.send(fa.Message(topic, b"never", tags="t", keys=["k"], properties=OWN))
    with fa.PushConsumer(
        asking.namesrv, group=group, subscribe={topic: "*"}, listener=seen.take, start_from="earliest", max_attempts=1
    ):
        wait_until(lambda: f"%DLQ%{group}" in topics_of(asking), "the dead letter's topic", PATIENCE_S)
        (dead,) = assert_alike(java, asking, f"%DLQ%{group}", 1).values()
    assert (dead.msg_id, dead.tags, dead.get("RETRY_TOPIC")) == (sent.msg_id, "t", topic)
    assert dead.get("ORIGIN_MESSAGE_ID") == sent.offset_msg_id


def max_offset(cluster: Cluster, topic: str) -> int:
    answer, _ = rawcall.call(cluster.broker, 30, {"topic": topic, "queueId": "0"})
    return int((answer.get("extFields") or {}).get("offset", 0))


def topics_of(cluster: Cluster) -> str:
    return rawcall.call(cluster.namesrv, 206)[1].decode()


# The offsets of a broadcasting consumer.


def test_a_broadcasting_consumer_goes_on_where_java_was(
    java: Agent, asking: Cluster, topic: str, producer: fa.Producer, tmp_path: Path
) -> None:
    group, name, seen = fresh("g"), fresh("listener"), RecordingListener()
    client_id = java.call(
        "push.start", name=name, namesrv=asking.namesrv, group=group, topics={topic: "*"}, model="BROADCASTING", persistMs=500
    )
    for number in range(8):
        producer.send(fa.Message(topic, f"{number}".encode()))
    assert len(java.consumed(name, 8)) == 8
    java.call("push.stop", name=name)
    producer.send(fa.Message(topic, b"meanwhile"))
    ip, _, instance_name = client_id.partition("@")
    with fa.PushConsumer(
        asking.namesrv, group=group, subscribe={topic: "*"}, listener=seen.take, broadcasting=True, start_from="earliest",
        client_ip=ip, instance_name=instance_name, local_offset_dir=java.log.parent / "offsets",
    ):  # fmt: skip
        wait_until(lambda: bool(seen.messages), "we have it", PATIENCE_S)
        producer.send(fa.Message(topic, b"now"))
        wait_until(lambda: len(seen.messages) >= 2, "and the next", PATIENCE_S)
    assert seen.bodies() == [b"meanwhile", b"now"]
    java.call("push.start", name=name, namesrv=asking.namesrv, group=group, topics={topic: "*"}, model="BROADCASTING")
    producer.send(fa.Message(topic, b"back"))
    assert [one["body"] for one in java.consumed(name, 1)] == ["back"]
    java.submit("push.stop", name=name)
