"""Firearrow's and Apache's broker, filled by the Java client with every kind of message, read and written by Spark."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from firearrow.wire.names import dlq_topic, retry_topic
from firearrow.wire.record import COMPRESSED
from tests.conformance import builds, rawcall, servers
from tests.conformance.agent import Agent, AgentError
from tests.spark.running import NO_FLOW_CONTROL, PATIENCE_S, bodies, create_topic, finish, fresh, wait_for, wait_for_queue_files

pytestmark = [
    pytest.mark.skipif(
        builds.missing_tools("java", "javac", "mvn") is not None, reason=str(builds.missing_tools("java", "javac", "mvn"))
    ),
    pytest.mark.timeout(2 * PATIENCE_S),  # Maven may have to download the Java client and Apache's broker
]
ALWAYS = 1_000_000
LARGE = (4 << 20) - 4096  # of 4 MB, the most that is allowed: what cannot be compressed grows a little
_ADDED_BY_THE_CLIENT = ("MIN_OFFSET", "MAX_OFFSET")


class Names(NamedTuple):
    """The topic with all kinds of messages, and the group that consumes some of them."""

    topic: str
    group: str

    @property
    def topics(self) -> tuple[str, str, str]:
        return self.topic, retry_topic(self.group), dlq_topic(self.group)


@pytest.fixture
def java(tmp_path: Path) -> Iterator[Agent]:
    """A Java process for one attempt of a test, so that no client of a failed attempt is left."""
    agent = Agent(builds.SERVER_VERSION, tmp_path / "agent")
    yield agent
    agent.close()


@pytest.fixture(scope="module", params=["firearrow", "apache"])
def running(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[servers.Cluster]:
    one = servers.start(tmp_path_factory.mktemp(request.param), NO_FLOW_CONTROL, kind=request.param)
    yield one
    if request.param == "firearrow":
        for process in one.processes:
            process.stop(PATIENCE_S)
    one.dispose()


def test_query_scan_and_java_client_agree_on_every_kind_of_message(spark: Any, java: Agent, running: servers.Cluster) -> None:
    names = Names(fresh("Kinds"), fresh("kinds-group"))
    create_topic(running.broker, running.namesrv, names.topic, 3)
    sent = send_every_kind(java, running.namesrv, names)
    store = next(path.parent for path in running.store.rglob("commitlog"))

    def reading(**options: str) -> Any:
        return spark.read.format("rocketmq").options(**options).load()

    seen = seen_by_java(java, running.namesrv, names)
    subscribe = ",".join(names.topics)
    live = rows(reading(nameServer=running.namesrv, subscribe=subscribe))
    wait_for_queue_files(store, names.topics)
    scan = reading(path=str(store), subscribe=subscribe, brokerName=running.broker_name, maxSplitBytes="1m")
    wait_for(scan.count, len(live), "rows below the flushed offset")
    scanned = rows(scan)

    assert set(live) == set(seen) == set(scanned)
    for place, row in live.items():
        assert scanned[place] == row, place
        assert as_java_sees_it(row) == seen[place], place
    assert Counter(topic for topic, _, _ in live) == Counter(dict(zip(names.topics, (sent, 2, 1), strict=True)))
    check_the_kinds(live, names)
    halves = reading(path=str(store), includeSystemTopics="true").where("topic = 'RMQ_SYS_TRANS_HALF_TOPIC'")
    assert {bytes(row.body) for row in halves.select("body").collect()} == {b"committed", b"rolled back"}


def send_every_kind(java: Agent, namesrv: str, names: Names) -> int:
    """Return the number of messages of the topic, which is the expected number of rows."""
    producers: dict[str, dict[str, Any]] = {"plain": {}, "lz4": {"compression": "LZ4"}, "zstd": {"compression": "ZSTD"}}
    for name, more in producers.items():
        java.call("producer.start", name=name, namesrv=namesrv, group=fresh(name), timeoutMs=60_000, **more)
    messages: list[dict[str, Any]] = [
        {"body": "plain"},
        {
            "body": "all",
            "tags": "TagÄ",
            "keys": "k1 schlüssel 漢",
            "flag": -7,
            "properties": {"naïve": "漢字🙂", "n": "-1", "q": '"\\'},
        },
        {"body": "grüße 漢字 🙂", "flag": 2_147_483_647},
        {"body": "waited", "delayLevel": 1, "tags": "late"},
        {"body": "again", "tags": "r"},
        {"body": "doomed", "tags": "d"},
        {"size": LARGE, "seed": 1, "keys": "large"},
        {"size": 300_000, "tags": "zlib"},
        *({"body": f"number {n}", "tags": "abc"[n % 3], "keys": f"n{n}", "properties": {"n": str(n)}} for n in range(60)),
    ]
    results = java.call("producer.send", name="plain", topic=names.topic, messages=messages)
    for name in ("lz4", "zstd"):
        results += java.call("producer.send", name=name, topic=names.topic, messages=[{"size": 100_000, "tags": name}])
    batch = [{"body": f"batched {n}", "tags": "b", "keys": f"b{n}"} for n in range(20)]
    results.append(java.call("producer.send", name="plain", topic=names.topic, mode="batch", messages=batch))
    assert [one["message"] for one in results if one.get("status") != "SEND_OK"] == []
    java.call("tran.start", name="transactions", group=fresh("transactions"), namesrv=namesrv)
    decided = [{"body": "committed", "local": "commit", "tags": "t"}, {"body": "rolled back", "local": "rollback"}]
    for one in decided:  # the broker asks if it has not received the decision, which is sent without acknowledgement
        java.call("tran.answer", name="transactions", body=one["body"], answer=one["local"])
    java.call("tran.send", name="transactions", topic=names.topic, messages=decided)

    fail = [{"body": "again", "times": 1}, {"body": "doomed", "times": ALWAYS}]
    topics = {names.topic: "r || d"}
    how: dict[str, Any] = {"maxReconsumeTimes": 1, "delayLevel": 1, "pollNameServerMs": 1_000, "fail": fail}
    java.call("push.start", name="refuses", group=names.group, namesrv=namesrv, topics=topics, **how)
    wait_for(lambda: rawcall.has_route(namesrv, names.topics[2]), True, "a dead letter")
    total = len(messages) + 2 + len(batch) + 1
    java.call("pull.start", name="counts", group=fresh("counts"), namesrv=namesrv)

    def size(topic: str) -> Any:
        try:
            queues = java.call("pull.queues", name="counts", topic=topic)
            return sum(java.call("pull.max", name="counts", queue=queue) for queue in queues)
        except AgentError as error:  # a request took longer than the client waits
            return str(error)

    wait_for(lambda: [size(topic) for topic in names.topics], [total, 2, 1], "delays, transactions and retries")
    java.call("push.stop", name="refuses")
    for name in ("plain", "lz4", "zstd"):
        java.call("producer.stop", name=name)
    java.call("tran.stop", name="transactions")
    return total


def seen_by_java(java: Agent, namesrv: str, names: Names) -> dict[Any, dict[str, Any]]:
    java.call("pull.start", name="reads", group=fresh("reads"), namesrv=namesrv)
    found = [one for topic in names.topics for one in java.call("pull.all", name="reads", topic=topic)]
    for name in ("reads", "counts"):
        java.call("pull.stop", name=name)
    for one in found:
        one.pop("body", None)  # its digest is there
        one["properties"] = {name: value for name, value in one["properties"].items() if name not in _ADDED_BY_THE_CLIENT}
    return {(one["topic"], one["queueId"], one["queueOffset"]): one for one in found}


def rows(frame: Any) -> dict[Any, dict[str, Any]]:
    collected = [row.asDict() for row in frame.collect()]
    made = {(row["topic"], row["queueId"], row["queueOffset"]): row for row in collected}
    assert len(made) == len(collected)
    return made


def as_java_sees_it(row: dict[str, Any]) -> dict[str, Any]:
    same = ("topic", "queueId", "queueOffset", "msgId", "offsetMsgId", "flag", "reconsumeTimes", "commitLogOffset")
    made = {name: row[name] for name in (*same, "storeSize", "properties")}
    made |= {name: row[name] for name in ("tags", "keys") if row[name] is not None}
    made |= {name: round(row[name].timestamp() * 1000) for name in ("bornTimestamp", "storeTimestamp")}
    made["sysFlag"] = row["sysFlag"] & ~COMPRESSED  # the client takes it away when it has inflated the body
    made["bornHost"] = row["bornHost"].rpartition(":")[0]
    return made | {"bodyLength": len(row["body"]), "sha256": hashlib.sha256(row["body"]).hexdigest()}


def check_the_kinds(live: dict[Any, dict[str, Any]], names: Names) -> None:
    """Check that every kind of message exists, so that the comparison is not vacuous."""
    by_body: dict[bytes, list[dict[str, Any]]] = {}
    for row in live.values():
        by_body.setdefault(bytes(row["body"][:100]), []).append(row)

    def one(body: str) -> dict[str, Any]:
        (row,) = by_body[body.encode()]
        return row

    assert (one("plain")["tags"], one("plain")["keys"], one("plain")["flag"]) == (None, None, 0)
    assert (one("all")["tags"], one("all")["keys"], one("all")["flag"]) == ("TagÄ", "k1 schlüssel 漢", -7)
    assert one("all")["properties"].items() >= {"naïve": "漢字🙂", "n": "-1", "q": '"\\'}.items()
    assert one("grüße 漢字 🙂")["flag"] == 2_147_483_647
    assert one("waited")["storeTimestamp"] > one("waited")["bornTimestamp"]
    assert one("committed")["sysFlag"] & 0xC == 0x8
    assert b"rolled back" not in by_body
    assert sorted(row["topic"] for row in by_body[b"again"]) == sorted(names.topics[:2])
    assert sorted(row["topic"] for row in by_body[b"doomed"]) == sorted(names.topics)
    assert max(row["reconsumeTimes"] for row in by_body[b"doomed"]) >= 1
    compressed = {row["tags"]: row for row in live.values() if row["tags"] in ("zlib", "lz4", "zstd")}
    assert set(compressed) == {"zlib", "lz4", "zstd"}
    assert all(row["sysFlag"] & 1 and row["storeSize"] < len(row["body"]) for row in compressed.values())
    assert len({row["sysFlag"] & 0x700 for row in compressed.values()}) == 3
    assert max(len(row["body"]) for row in live.values()) == LARGE


def test_repeated_job_and_stream_store_nothing_twice(spark: Any, running: servers.Cluster, tmp_path: Path) -> None:
    from pyspark.errors import AnalysisException

    target, copy, write_id = fresh("Written"), fresh("Copied"), fresh("job")
    for topic, queues in ((target, 2), (copy, 3)):
        create_topic(running.broker, running.namesrv, topic, queues)
    where = {"nameServer": running.namesrv}
    frame = spark.range(500).selectExpr("cast(id AS string) AS body", "'t' AS tags", "cast(id % 7 AS string) AS shardingKey")
    wanted = Counter({b"%d" % n: 1 for n in range(500)})

    for _ in range(2):
        frame.write.format("rocketmq").options(**where, topic=target, writeId=write_id).mode("append").save()

    written = spark.read.format("rocketmq").options(**where, subscribe=target).load()
    ours = running.kind == "firearrow"
    assert Counter(bytes(row.body) for row in written.collect()) == (wanted if ours else wanted + wanted)
    once = written.selectExpr("body", "properties['__SPARK_ID'] AS id").dropDuplicates(["id"])
    assert Counter(bytes(row.body) for row in once.collect()) == wanted
    if not ours:
        refused = frame.write.format("rocketmq").options(**where, topic=target, idempotent="true").mode("append")
        with pytest.raises(AnalysisException, match="option idempotent is true, but the broker broker-a does not deduplicate"):
            refused.save()

    query = (
        spark.readStream.format("rocketmq")
        .options(**where, subscribe=target, startingOffsets="earliest", maxOffsetsPerTrigger="300")
        .load()
        .writeStream.format("rocketmq")
        .options(**where, topic=copy, checkpointLocation=str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    finish(query)
    assert bodies(running.namesrv, copy) == bodies(running.namesrv, target)
