"""Firearrow's and Apache's broker, filled by the Java client with every kind of message, read and written by Spark."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from firearrow.wire.record import COMPRESSED
from tests.conformance import builds, rawcall, servers
from tests.conformance.agent import Agent
from tests.spark.running import bodies, create_topic
from tests.support.waiting import wait_until

pytestmark = pytest.mark.skipif(
    builds.missing_tools("java", "javac", "mvn") is not None, reason=str(builds.missing_tools("java", "javac", "mvn"))
)
TOPIC, GROUP = "Kinds", "kinds-group"
TOPICS = (TOPIC, f"%RETRY%{GROUP}", f"%DLQ%{GROUP}")
ALWAYS = 1_000_000
LARGE = (4 << 20) - 4096  # of 4 MB, the most that is allowed: what cannot be compressed grows a little
_ADDED_BY_THE_CLIENT = ("MIN_OFFSET", "MAX_OFFSET")


@pytest.fixture(scope="module")
def java(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agent]:
    agent = Agent(builds.SERVER_VERSION, tmp_path_factory.mktemp("agent"))
    yield agent
    agent.close()


@pytest.fixture(scope="module", params=["firearrow", "apache"])
def running(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[servers.Cluster]:
    one = servers.start(tmp_path_factory.mktemp(request.param), kind=request.param)
    yield one
    one.dispose()


def test_query_scan_and_java_client_agree_on_every_kind_of_message(spark: Any, java: Agent, running: servers.Cluster) -> None:
    create_topic(running.broker, running.namesrv, TOPIC, 3)
    sent = send_every_kind(java, running.namesrv)
    store = next(path.parent for path in running.store.rglob("commitlog"))

    def reading(**options: str) -> Any:
        return spark.read.format("rocketmq").options(**options).load()

    seen = seen_by_java(java, running.namesrv)
    live = rows(reading(nameServer=running.namesrv, subscribe=",".join(TOPICS)))
    scan = reading(path=str(store), subscribe=",".join(TOPICS), brokerName=running.broker_name, maxSplitBytes="1m")
    wait_until(lambda: scan.count() == len(live), "the files to hold what was sent", 30)
    scanned = rows(scan)

    assert set(live) == set(seen) == set(scanned)
    for place, row in live.items():
        assert scanned[place] == row, place
        assert as_java_sees_it(row) == seen[place], place
    assert Counter(topic for topic, _, _ in live) == Counter({TOPIC: sent, TOPICS[1]: 2, TOPICS[2]: 1})
    check_the_kinds(live)
    halves = reading(path=str(store), includeSystemTopics="true").where("topic = 'RMQ_SYS_TRANS_HALF_TOPIC'")
    assert {bytes(row.body) for row in halves.select("body").collect()} == {b"committed", b"rolled back"}


def send_every_kind(java: Agent, namesrv: str) -> int:
    """Return the number of messages of the topic, which is the expected number of rows."""
    producers: dict[str, dict[str, Any]] = {"plain": {}, "lz4": {"compression": "LZ4"}, "zstd": {"compression": "ZSTD"}}
    for name, more in producers.items():
        java.call("producer.start", name=name, namesrv=namesrv, group=f"p-{name}", **more)
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
    results = java.call("producer.send", name="plain", topic=TOPIC, messages=messages)
    for name in ("lz4", "zstd"):
        results += java.call("producer.send", name=name, topic=TOPIC, messages=[{"size": 100_000, "tags": name}])
    batch = [{"body": f"batched {n}", "tags": "b", "keys": f"b{n}"} for n in range(20)]
    results.append(java.call("producer.send", name="plain", topic=TOPIC, mode="batch", messages=batch))
    assert [one["message"] for one in results if one.get("status") != "SEND_OK"] == []
    java.call("tran.start", name="transactions", group="p-transactions", namesrv=namesrv)
    decided = [{"body": "committed", "local": "commit", "tags": "t"}, {"body": "rolled back", "local": "rollback"}]
    java.call("tran.send", name="transactions", topic=TOPIC, messages=decided)

    fail = [{"body": "again", "times": 1}, {"body": "doomed", "times": ALWAYS}]
    topics = {TOPIC: "r || d"}
    how: dict[str, Any] = {"maxReconsumeTimes": 1, "delayLevel": 1, "pollNameServerMs": 1_000, "fail": fail}
    java.call("push.start", name="refuses", group=GROUP, namesrv=namesrv, topics=topics, **how)
    wait_until(lambda: rawcall.has_route(namesrv, TOPICS[2]), "a dead letter", 180)
    total = len(messages) + 2 + len(batch) + 1
    java.call("pull.start", name="counts", group="counts", namesrv=namesrv)

    def there() -> bool:
        held = [
            sum(
                java.call("pull.max", name="counts", queue=queue)
                for queue in java.call("pull.queues", name="counts", topic=topic)
            )
            for topic in TOPICS
        ]
        return held == [total, 2, 1]

    wait_until(there, "delays, transactions and retries", 180)
    java.call("push.stop", name="refuses")
    for name in ("plain", "lz4", "zstd"):
        java.call("producer.stop", name=name)
    java.call("tran.stop", name="transactions")
    return total


def seen_by_java(java: Agent, namesrv: str) -> dict[Any, dict[str, Any]]:
    java.call("pull.start", name="reads", group="reads", namesrv=namesrv)
    found = [one for topic in TOPICS for one in java.call("pull.all", name="reads", topic=topic)]
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


def check_the_kinds(live: dict[Any, dict[str, Any]]) -> None:
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
    assert sorted(row["topic"] for row in by_body[b"again"]) == sorted((TOPIC, TOPICS[1]))
    assert sorted(row["topic"] for row in by_body[b"doomed"]) == sorted(TOPICS)
    assert max(row["reconsumeTimes"] for row in by_body[b"doomed"]) >= 1
    compressed = {row["tags"]: row for row in live.values() if row["tags"] in ("zlib", "lz4", "zstd")}
    assert set(compressed) == {"zlib", "lz4", "zstd"}
    assert all(row["sysFlag"] & 1 and row["storeSize"] < len(row["body"]) for row in compressed.values())
    assert len({row["sysFlag"] & 0x700 for row in compressed.values()}) == 3
    assert max(len(row["body"]) for row in live.values()) == LARGE


def test_repeated_job_and_stream_store_nothing_twice(spark: Any, running: servers.Cluster, tmp_path: Path) -> None:
    from pyspark.errors import AnalysisException

    for topic, queues in (("Written", 2), ("Copied", 3)):
        create_topic(running.broker, running.namesrv, topic, queues)
    where = {"nameServer": running.namesrv}
    frame = spark.range(500).selectExpr("cast(id AS string) AS body", "'t' AS tags", "cast(id % 7 AS string) AS shardingKey")
    wanted = Counter({b"%d" % n: 1 for n in range(500)})

    for _ in range(2):
        frame.write.format("rocketmq").options(**where, topic="Written", writeId="job").mode("append").save()

    written = spark.read.format("rocketmq").options(**where, subscribe="Written").load()
    ours = running.kind == "firearrow"
    assert Counter(bytes(row.body) for row in written.collect()) == (wanted if ours else wanted + wanted)
    once = written.selectExpr("body", "properties['__SPARK_ID'] AS id").dropDuplicates(["id"])
    assert Counter(bytes(row.body) for row in once.collect()) == wanted
    if not ours:
        refused = frame.write.format("rocketmq").options(**where, topic="Written", idempotent="true").mode("append")
        with pytest.raises(AnalysisException, match="option idempotent is true, but the broker broker-a does not deduplicate"):
            refused.save()

    query = (
        spark.readStream.format("rocketmq")
        .options(**where, subscribe="Written", startingOffsets="earliest", maxOffsetsPerTrigger="300")
        .load()
        .writeStream.format("rocketmq")
        .options(**where, topic="Copied", checkpointLocation=str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(120)
    assert bodies(running.namesrv, "Copied") == bodies(running.namesrv, "Written")
