"""Attacks on a broker and a name server that one client without credentials can try.

An attack has two steps. `prepare` stores what it needs and runs before the measurement. `run` is measured. Both run in a process
of their own. The number of requests is fixed, and every attack ends within `ATTACK_S` seconds or is ended.
"""

from __future__ import annotations

import json
import socket
import struct
import time
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from bench.attack_peer import HOST, Outcome, Peer, Victim, max_offset, pull_ext, send, send_ext, topic_ext
from firearrow.wire import batch
from firearrow.wire.bodies.registration import RegisterBrokerBody
from firearrow.wire.bodies.topic import DataVersion, TopicConfig
from firearrow.wire.codes import RequestCode
from firearrow.wire.fastjson import loads
from firearrow.wire.frame import encode_request

ATTACK_S = 40.0  # of one attack; a server that is blocked longer has failed by far
TOPIC = "Attack"
PARKED_PULLS = 20_000
HOLD_MS = 3_000
FEW_FILES = 400


def _nothing(victim: Victim) -> None:
    pass


@dataclass(frozen=True)
class Attack:
    """One attack; `settings` and `max_files` are those of the attacked broker."""

    name: str
    run: Callable[[Victim], Outcome]
    prepare: Callable[[Victim], None] = _nothing
    settings: dict[str, str] = field(default_factory=dict)
    max_files: int | None = None


def _frames(code: int, exts: Iterable[dict[str, str]], body: bytes = b"") -> list[bytes]:
    return [encode_request(code, ext, body, opaque=number) for number, ext in enumerate(exts, 1)]


def _exchange(port: int, frames: Sequence[bytes], seconds: float = 20.0) -> Outcome:
    """Send all frames at once, then read the responses. A disconnection is the server's right."""
    peer = Peer(port)
    try:
        peer.drain(peer.pipeline(frames), seconds)
    except OSError:
        pass
    finally:
        peer.close()
    return Outcome()


def no_attack(victim: Victim) -> Outcome:
    time.sleep(2.0)
    return Outcome()


# SQL92 filters.


def store_one(victim: Victim) -> None:
    peer = Peer(victim.broker)
    peer.request(RequestCode.UPDATE_AND_CREATE_TOPIC, topic_ext(TOPIC, 4))
    send(peer, TOPIC, b"x", "a\x011\x02")
    peer.close()


def _pull_with_filters(victim: Victim, filters: Iterable[str]) -> Outcome:
    return _exchange(victim.broker, _frames(RequestCode.PULL_MESSAGE, (pull_ext(TOPIC, sql=text) for text in filters)))


def nested_between(victim: Victim) -> Outcome:
    filters = []
    for number in range(4):
        text = "a"
        for _ in range(16):
            text = f"-({text} BETWEEN {number} AND 9)"
        filters.append(f"{text} IS NULL")
    return _pull_with_filters(victim, filters)


def many_operands(victim: Victim) -> Outcome:
    """Sixteen filters beyond the limit of operands, and sixteen of the largest size that is allowed."""
    terms = [(number, count) for count in (1_024, 640) for number in range(16)]
    return _pull_with_filters(
        victim, (" OR ".join(f"a = {number * 10_000 + term}" for term in range(count)) for number, count in terms)
    )


def many_signs(victim: Victim) -> Outcome:
    return _pull_with_filters(victim, (f"a > {'-' * (60_000 + number)}1" for number in range(16)))


def store_long_numbers(victim: Victim) -> None:
    peer = Peer(victim.broker)
    peer.request(RequestCode.UPDATE_AND_CREATE_TOPIC, topic_ext(TOPIC, 4))
    for number in range(300):
        send(peer, TOPIC, b"x", f"a\x01{'1' * (10_000 + number)}\x02")
    peer.close()


def long_numbers(victim: Victim) -> Outcome:
    text = " OR ".join(f"a = {number}.5" for number in range(100))
    exts = [pull_ext(TOPIC, offset, sql=text) for offset in range(0, 300, 5)]
    return _exchange(victim.broker, _frames(RequestCode.PULL_MESSAGE, exts))


# Parked pulls.


def _park(victim: Victim, connections: int, topic: str, sql: str | None = None, pulls: int = PARKED_PULLS) -> list[Peer]:
    peers = [Peer(victim.broker) for _ in range(connections)]
    offset = max_offset(peers[0], topic)
    each = pulls // connections
    frames = _frames(RequestCode.PULL_MESSAGE, [pull_ext(topic, offset, sql=sql, hold_ms=HOLD_MS)] * each)
    for peer in peers:
        peer.pipeline([b"".join(frames)])
    return peers


def _expire(peers: list[Peer]) -> Outcome:
    """Wait until the first connection has its responses: the broker looks for expired pulls in intervals."""
    deadline = time.monotonic() + 15.0
    for peer in peers:
        try:
            peer.drain(PARKED_PULLS // len(peers), max(deadline - time.monotonic(), 0.01))
        except OSError:
            continue
    return Outcome()


def parked_by_one(victim: Victim) -> Outcome:
    return _expire(_park(victim, 1, TOPIC))


def parked_by_many(victim: Victim) -> Outcome:
    return _expire(_park(victim, 200, TOPIC))


def parked_and_closed(victim: Victim) -> Outcome:
    for peer in _park(victim, 200, TOPIC):
        peer.close()
    time.sleep(2 * HOLD_MS / 1000)
    return Outcome()


def parked_and_woken(victim: Victim) -> Outcome:
    peers = _park(victim, 200, TOPIC)
    time.sleep(1.0)
    send(Peer(victim.broker), TOPIC, b"x")
    return _expire(peers)


def parked_with_filter(victim: Victim) -> Outcome:
    """The queue is that of the probe, whose sends make the broker evaluate the filters."""
    text = " OR ".join(f"a = {number}.5" for number in range(100))
    peers = _park(victim, 20, victim.topic, text, 4_000)
    producer = Peer(victim.broker)
    end = time.monotonic() + HOLD_MS / 1000
    while time.monotonic() < end:
        send(producer, victim.topic, b"x", f"a\x01{'1' * 1_000}\x02")
    del peers
    return Outcome()


# Requests of administrators.


def make_large_topics(victim: Victim) -> None:
    peer = Peer(victim.broker)
    peer.request(RequestCode.UPDATE_AND_CREATE_TOPIC, topic_ext(TOPIC, 1_000))
    peer.close()


def repeated_topic_list(victim: Victim) -> Outcome:
    ext = {"consumerGroup": "attackers", "topicList": ";".join([TOPIC] * 2_000)}
    return _exchange(victim.broker, _frames(RequestCode.GET_CONSUME_STATS, [ext] * 5))


def large_topics(victim: Victim) -> Outcome:
    """Topics beyond the limit of queues and of the largest size that is allowed, then requests that go over all queues."""
    sizes = [65_535] * 4 + [1_024] * 100
    creating = [
        encode_request(RequestCode.UPDATE_AND_CREATE_TOPIC, topic_ext(f"Large{number}", queues), opaque=number)
        for number, queues in enumerate(sizes, 1)
    ]
    _exchange(victim.broker, creating)
    names = [f"Large{number}" for number in range(1, len(sizes) + 1)]
    asking = _frames(RequestCode.GET_TOPIC_STATS_INFO, ({"topic": name} for name in names))
    asking += _frames(RequestCode.GET_CONSUME_STATS, [{"consumerGroup": "attackers", "topicList": ";".join(names)}] * 3)
    asking += _frames(RequestCode.GET_ALL_TOPIC_CONFIG, [{}] * 3)
    return _exchange(victim.broker, asking)


def large_settings(victim: Victim) -> Outcome:
    body = b"".join(b"k%07d=v\n" % number for number in range(1_400_000))
    return _exchange(victim.broker, _frames(RequestCode.UPDATE_BROKER_CONFIG, [{}], body))


def many_locks(victim: Victim) -> Outcome:
    """All locks in one request, then in requests of the size that is allowed."""

    def body(group: int, count: int) -> bytes:
        queues = [{"topic": "T", "brokerName": "b", "queueId": number} for number in range(count)]
        return json.dumps({"consumerGroup": f"G{group}", "clientId": "c", "mqSet": queues}, separators=(",", ":")).encode()

    frames = [encode_request(RequestCode.LOCK_BATCH_MQ, {}, body(0, 280_000), opaque=1)]
    frames += [encode_request(RequestCode.LOCK_BATCH_MQ, {}, body(number, 8_192), opaque=number) for number in range(2, 36)]
    return _exchange(victim.broker, frames)


# Bodies in JSON.


def tolerant_json() -> bytes:
    """Return 15.7 MB that are JSON in Apache's dialect only."""
    return b"{'a':[" + b"1," * 7_850_000 + b"]}"


def tolerant_json_broker(victim: Victim) -> Outcome:
    frames = _frames(RequestCode.HEART_BEAT, [{}], tolerant_json())
    frames += _frames(RequestCode.LOCK_BATCH_MQ, [{}], tolerant_json())
    return _exchange(victim.broker, frames)


def registration_ext(name: str, body: bytes, *, compressed: bool = False) -> dict[str, str]:
    return {
        "brokerName": name,
        "brokerAddr": f"{HOST}:9",
        "clusterName": "C",
        "haServerAddr": f"{HOST}:9",
        "brokerId": "0",
        "compressed": "true" if compressed else "false",
        "bodyCrc32": str(zlib.crc32(body) & 0x7FFFFFFF),
    }


def tolerant_json_namesrv(victim: Victim) -> Outcome:
    body = tolerant_json()
    return _exchange(victim.namesrv, _frames(RequestCode.REGISTER_BROKER, [registration_ext("attacker", body)], body))


# Memory.


def store_large_messages(victim: Victim) -> None:
    peer = Peer(victim.broker)
    peer.request(RequestCode.UPDATE_AND_CREATE_TOPIC, topic_ext(TOPIC, 4))
    for _ in range(64):
        send(peer, TOPIC, bytes(3 << 20))
    peer.close()


def unread_pulls(victim: Victim) -> Outcome:
    peers = [Peer(victim.broker, receive_buffer=4096) for _ in range(20)]
    frames = _frames(RequestCode.PULL_MESSAGE, [pull_ext(TOPIC, number % 60) for number in range(2_000)])
    for peer in peers:
        peer.socket.settimeout(0.2)
        peer.pipeline([b"".join(frames)])
    time.sleep(8.0)
    return Outcome()


def unfinished_frames(victim: Victim) -> Outcome:
    peers = [Peer(victim.broker) for _ in range(60)]
    frame = encode_request(RequestCode.SEND_MESSAGE_V2, send_ext(TOPIC), bytes(16_700_000), opaque=1)[:-10]
    for peer in peers:
        peer.socket.settimeout(0.5)
        peer.pipeline([frame])
    time.sleep(3.0)
    return Outcome()


def batch_sizes(victim: Victim) -> Outcome:
    """Batches of many small messages, each with another number of them. The ids in the responses are too long for our decoder."""
    one = batch.join([(0, b"", b"")])
    ext = send_ext(TOPIC, batch=True)
    peer = Peer(victim.broker)
    for number in range(60):
        frame = encode_request(RequestCode.SEND_BATCH_MESSAGE, ext, one * (60_000 + number), opaque=number)
        peer.socket.sendall(frame)
        peer.discard(struct.unpack(">i", peer.socket.recv(4, socket.MSG_WAITALL))[0])
    return Outcome()


# Connections.


def idle_connections(victim: Victim) -> Outcome:
    """Open more connections than the broker has descriptors, then make it create segments of the log."""
    outcome = Outcome()
    first = Peer(victim.broker)
    first.request(RequestCode.UPDATE_AND_CREATE_TOPIC, topic_ext(TOPIC, 1))
    idle = [socket.create_connection((HOST, victim.broker), timeout=5) for _ in range(FEW_FILES + 100)]
    for _ in range(20):
        began = time.monotonic()
        try:
            late = Peer(victim.broker)
            response = send(late, TOPIC, bytes(900_000))
            late.close()
        except OSError as error:
            outcome.fault(f"a new client failed: {type(error).__name__}")
            break
        outcome.blocked_s = max(outcome.blocked_s, time.monotonic() - began)
        if response.code:
            outcome.fault(f"a send of a new client was refused with code {response.code}")
    for one in idle:
        one.close()
    return outcome


def stalled_scrapers(victim: Victim) -> Outcome:
    outcome = Outcome()
    stalled = [socket.create_connection((HOST, victim.metrics), timeout=5) for _ in range(51)]
    for number, one in enumerate(stalled):
        one.sendall((b"", b"GET /met", b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")[number % 3])
    began = time.monotonic()
    try:
        with socket.create_connection((HOST, victim.metrics), timeout=5) as scraper:
            scraper.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            if not scraper.recv(65_536).startswith(b"HTTP/1.1 200"):
                outcome.fault("a scrape was not answered")
    except OSError as error:
        outcome.fault(f"a scrape failed: {type(error).__name__}")
    outcome.blocked_s = time.monotonic() - began
    return outcome


# Groups and topics.


def heartbeat_body(client: str, groups: Iterable[str]) -> bytes:
    consumers = [{"groupName": group, "subscriptionDataSet": []} for group in groups]
    body = {"clientID": client, "consumerDataSet": consumers, "producerDataSet": []}
    return json.dumps(body, separators=(",", ":")).encode()


def many_groups(victim: Victim) -> Outcome:
    """All groups in one heartbeat, then in heartbeats of the size that is allowed."""
    _exchange(victim.broker, _frames(RequestCode.HEART_BEAT, [{}], heartbeat_body("c", (f"G{one}" for one in range(20_000)))))
    for number in range(20):
        body = heartbeat_body(f"c{number}", (f"G{number}-{one}" for one in range(1_000)))
        _exchange(victim.broker, _frames(RequestCode.HEART_BEAT, [{}], body))
    return Outcome()


def many_topics(victim: Victim) -> Outcome:
    """Topics created by sends, all pipelined on one connection."""
    return _exchange(
        victim.broker, _frames(RequestCode.SEND_MESSAGE_V2, (send_ext(f"Many{one}") for one in range(20_000)), b"x"), 30
    )


# Name server.


def large_registration(victim: Victim) -> Outcome:
    one = struct.pack(">i", 30) + b"TopicTopicTopic 4 4 6 SINGLE_T"
    version = b'{"counter":1,"stateVersion":0,"timestamp":1}'
    raw = struct.pack(">i", len(version)) + version + struct.pack(">i", 700_000) + one * 700_000
    allowed = RegisterBrokerBody({f"T{one}": TopicConfig(f"T{one}", 4, 4) for one in range(40_000)}, DataVersion(1, 0, 1))
    bodies = [zlib.compress(raw), allowed.encode(compressed=True)]
    exts = [registration_ext("attacker", body, compressed=True) for body in bodies]
    frames = [encode_request(RequestCode.REGISTER_BROKER, ext, body, opaque=1) for ext, body in zip(exts, bodies, strict=True)]
    return _exchange(victim.namesrv, frames)


def many_key_values(victim: Victim) -> Outcome:
    exts = ({"namespace": "N", "key": f"k{number}", "value": "v" * 2_000} for number in range(2_000))
    return _exchange(victim.namesrv, _frames(RequestCode.PUT_KV_CONFIG, exts))


def captured_route(victim: Victim) -> Outcome:
    """Register another address under the name of the live broker, with a state version that looks newer, in two clusters."""
    outcome = Outcome()
    peer = Peer(victim.namesrv)
    before = route(peer, victim.topic)
    forged = RegisterBrokerBody({victim.topic: TopicConfig(victim.topic, 4, 4)}, DataVersion(1, 1 << 40, 1)).encode(
        compressed=False
    )
    for name, (cluster, _) in before.items():
        for other in (cluster, "attacker"):
            peer.request(RequestCode.REGISTER_BROKER, {**registration_ext(name, forged), "clusterName": other}, forged)
            if route(peer, victim.topic) != before:
                outcome.fault(f"the route was captured from cluster {other}")
    if not before:
        outcome.fault("no route to capture")
    return outcome


def route(peer: Peer, topic: str) -> dict[str, tuple[str, str]]:
    """Return cluster and address of the masters of a topic by broker name."""
    response = peer.request(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic})
    brokers = loads(response.body)["brokerDatas"] if response.body else []
    masters = [(data, address) for data in brokers for number, address in data["brokerAddrs"].items() if int(number) == 0]
    return {data["brokerName"]: (data["cluster"], address) for data, address in masters}


_SQL = {"enablePropertyFilter": "true"}
ATTACKS = [
    Attack("none, for comparison", no_attack),
    Attack("SQL92: nested BETWEEN", nested_between, store_one, _SQL),
    Attack("SQL92: 32 filters with 1,024 and 640 operands", many_operands, store_one, _SQL),
    Attack("SQL92: 60,000 signs", many_signs, store_one, _SQL),
    Attack("SQL92: properties with 10,000 digits", long_numbers, store_long_numbers, _SQL),
    Attack("20,000 parked pulls of 1 connection, expiry", parked_by_one, store_one),
    Attack("20,000 parked pulls of 200 connections, expiry", parked_by_many, store_one),
    Attack("20,000 parked pulls, closed connections", parked_and_closed, store_one),
    Attack("20,000 parked pulls, a message for all", parked_and_woken, store_one),
    Attack("4,000 parked pulls with SQL92 filters, sends", parked_with_filter, store_one, _SQL),
    Attack("GET_CONSUME_STATS, topic named 2,000 times", repeated_topic_list, make_large_topics),
    Attack("topics of 65,535 and 1,024 queues, statistics", large_topics),
    Attack("settings of 15 MB", large_settings),
    Attack("280,000 locks", many_locks),
    Attack("15.7 MB of tolerant JSON, broker", tolerant_json_broker),
    Attack("15.7 MB of tolerant JSON, name server", tolerant_json_namesrv),
    Attack("20 connections that pull and never read", unread_pulls, store_large_messages),
    Attack("60 unfinished frames of 16 MB", unfinished_frames, store_one),
    Attack("60 batches of 60,000 messages, each of another size", batch_sizes, store_one),
    Attack(
        "500 idle connections, 400 descriptors",
        idle_connections,
        settings={"mappedFileSizeCommitLog": "1048576"},
        max_files=FEW_FILES,
    ),
    Attack("51 stalled readers of /metrics", stalled_scrapers),
    Attack("heartbeats with 20,000 groups", many_groups),
    Attack("20,000 topics created by sends", many_topics),
    Attack("registration of 700,000 and 40,000 topics", large_registration),
    Attack("2,000 key-value puts of 2 KB", many_key_values),
    Attack("registration with a huge stateVersion", captured_route),
]
