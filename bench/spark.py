"""The Spark source, sink and archive compared with Spark's own formats and our client, in alternating order.

    read     a store scan (all columns) and Spark's Parquet read of the same rows; a live read and the store scan
    archive  the archive job and `spark.read.format("rocketmq")...write.parquet`, both snappy, from store files
    sink     rows of a Parquet file into a topic, and the same messages sent by our client, pipelined and in batches
    trigger  a micro-batch of few rows and one of Spark's rate-micro-batch source, with the settings that docs/spark/tuning.md
             recommends for short triggers
    start    a program that starts Spark and shows rows of a topic: from the command to the rows

Reads go to the `noop` sink, which consumes every column of every row. Warm-up rounds are not counted. The CPU time is that of all
participating processes, including the broker.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from bench.loads import ASYNC
from bench.process import BenchError, Process
from bench.report import Check, check_table
from bench.session import HERE, Session
from bench.spark_streams import RATE, ROCKETMQ, trigger_ms
from bench.targets import Running

SCAN_AT_LEAST = 0.8
LIVE_AT_LEAST = 0.5
ARCHIVE_AT_LEAST = 2.0
SINK_AT_LEAST = 0.7
TRIGGER_AT_MOST = 2.0
FIRST_ROWS_AT_MOST_S = 25.0

KINDS = ("start", "read", "archive", "sink", "trigger")
SIZE = 1_000
MESSAGES, MESSAGES_QUICK = 500_000, 120_000
SENT, SENT_QUICK = 400_000, 100_000  # a job that writes costs some tenths of a second whatever it writes
WARM_UP_ROUNDS = 3
TOPIC = "Orders"
ALL: dict[str, str] = {}
PLACE = {"columns": "queueOffset"}
SETTINGS = {
    "spark.master": "local[2]",
    "spark.driver.memory": "4g",
    "spark.ui.enabled": "false",
    "spark.log.level": "ERROR",
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
}


@dataclass(frozen=True)
class Figures:
    """Results of one measurement in one round."""

    rows: int
    seconds: float
    cpu_s: float

    @property
    def rows_per_s(self) -> float:
        return self.rows / self.seconds


def run(session: Session) -> bool:
    kinds = [kind for kind in KINDS if not session.only or any(text in kind for text in session.only)]
    if not kinds:
        raise BenchError(f"nothing has {' or '.join(session.only)} in its name; the names: {', '.join(KINDS)}")
    checks: list[Check] = []
    with session.store() as home, session.started(session.ours, home, {"flushDiskType": ASYNC}) as running:
        bench = _Bench(session, running, home)
        session.say(f"storing {bench.messages:,} messages of {SIZE} B")
        bench.send("batches", TOPIC, bench.messages)
        try:
            for kind in kinds:
                checks += getattr(bench, kind)()
        finally:
            bench.close()
        running.kill()  # the store is not needed afterwards
    print(check_table(checks))
    rows = [{"what": what, "rounds": [asdict(one) for one in rounds]} for what, rounds in bench.results.items()]
    session.save("spark", {"checks": [asdict(check) for check in checks], "rounds": rows})
    return not any(check.missed for check in checks)


class _Bench:
    def __init__(self, session: Session, running: Running, home: Path) -> None:
        self.messages = MESSAGES_QUICK if session.quick else MESSAGES
        self.results: dict[str, list[Figures]] = defaultdict(list)
        self._session = session
        self._sent = SENT_QUICK if session.quick else SENT
        self._home = home
        self._name_server = f"127.0.0.1:{running.port + 2}"
        self._parquet = str(home / "parquet")
        self._spark: Any = None
        self._count = 0

    def close(self) -> None:
        if self._spark is not None:
            self._spark.stop()

    # ---- what is measured

    def start(self) -> list[Check]:
        command = [sys.executable, "-m", "bench.spark_first", self._name_server, TOPIC]
        taken: list[float] = []
        for _ in range(self._session.rounds):
            began = time.monotonic()
            process = Process(command, self._new("first.out"), _environment())
            try:
                code = process.wait(300)
            finally:
                process.kill()
            if code or "order-" not in process.tail(40):
                raise BenchError(f"{' '.join(command)} showed no rows:\n{process.tail()}")
            taken.append(time.monotonic() - began)
            self._session.say(f"start to rows: {taken[-1]:.1f} s")
        return [Check("cold start: command to rows, Spark ended", median(taken), "s", FIRST_ROWS_AT_MOST_S)]

    def read(self) -> list[Check]:
        spark = self._started()
        self._rounds(
            "read",
            {
                "Spark's Parquet read": lambda: self._query(_noop(spark.read.parquet(self._parquet))),
                "store scan": lambda: self._query(_noop(self._store_files())),
                "live read": lambda: self._query(_noop(self._live())),
            },
        )
        parquet, scan, live = (self._rate(what) for what in ("Spark's Parquet read", "store scan", "live read"))
        return [
            *(self._figures(what) for what in ("Spark's Parquet read", "store scan", "live read")),
            Check("store scan by Spark's Parquet read", scan / parquet, "x", SCAN_AT_LEAST, at_least=True),
            Check("live read by store scan", live / scan, "x", LIVE_AT_LEAST, at_least=True),
        ]

    def archive(self) -> list[Check]:
        from firearrow.spark.pipelines.archive import archive
        from firearrow.spark.pipelines.engine import SparkEngine

        engine = SparkEngine(self._started())
        store = {"path": self._data, "subscribe": TOPIC}

        def ours() -> Figures:
            out = str(self._new("archive"))
            return self._query(lambda: archive(engine, store, out, compression="snappy"))

        def sparks() -> Figures:
            return self._query(lambda: self._store_files().write.parquet(str(self._new("written"))))

        self._rounds("archive", {"source into Spark's Parquet writer": sparks, "archive": ours})
        spark_rate, our_rate = self._rate("source into Spark's Parquet writer"), self._rate("archive")
        return [
            self._figures("source into Spark's Parquet writer"),
            self._figures("archive"),
            Check("archive by Spark's Parquet writer", our_rate / spark_rate, "x", ARCHIVE_AT_LEAST, at_least=True),
        ]

    def sink(self) -> list[Check]:
        rows = str(self._new("to-send"))
        frame = self._started().read.parquet(self._parquet).select("body", "keys", "tags", "properties")
        frame.limit(self._sent).repartition(2).write.parquet(rows)
        topic = "Copied"
        self.send("batches", topic, 1)  # which makes the topic

        def written() -> Figures:
            target = self._started().read.parquet(rows).write.format("rocketmq").mode("append")
            return self._query(target.option("nameServer", self._name_server).option("topic", topic).save, self._sent)

        ways: dict[str, Callable[[], Figures]] = {
            "client, pipelined": lambda: self.send("pipelined", topic, self._sent),
            "client, batches": lambda: self.send("batches", topic, self._sent),
            "sink": written,
        }
        self._rounds("sink", ways)
        fastest = max(self._rate("client, pipelined"), self._rate("client, batches"))
        return [
            *(self._figures(what) for what in ways),
            Check("sink by our fastest client", self._rate("sink") / fastest, "x", SINK_AT_LEAST, at_least=True),
        ]

    def trigger(self) -> list[Check]:
        spark = self._started()
        taken: dict[str, list[float]] = {RATE: [], ROCKETMQ: []}
        for number in range(1 + self._session.rounds):
            for kind in taken if number % 2 else reversed(taken):
                ms = trigger_ms(spark, kind, self._name_server, TOPIC, self._new("checkpoint"))
                self._session.say(f"trigger, {kind}: {ms:.0f} ms" + ("" if number else " (warm-up)"))
                if number:
                    taken[kind].append(ms)
        ours, theirs = median(taken[ROCKETMQ]), median(taken[RATE])
        return [
            Check("trigger of rate-micro-batch", theirs, "ms"),
            Check("trigger of a topic", ours, "ms"),
            Check("trigger, topic by rate-micro-batch", ours / theirs, "x", TRIGGER_AT_MOST),
        ]

    # ---- how

    def send(self, way: str, topic: str, count: int) -> Figures:
        words = [way, self._name_server, topic, str(count), str(SIZE)]
        process = Process([sys.executable, "-m", "bench.spark_client", *words], self._new("client.out"), _environment())
        try:
            if process.wait(600):
                raise BenchError(f"the client failed:\n{process.tail()}")
        finally:
            process.kill()
        found = json.loads(process.tail(1))
        return Figures(found["messages"], found["seconds"], found["cpu_s"])

    def _rounds(self, kind: str, things: dict[str, Callable[[], Figures]]) -> None:
        for number in range(WARM_UP_ROUNDS + self._session.rounds):
            counts = number >= WARM_UP_ROUNDS
            for what in things if number % 2 else reversed(things):
                figures = things[what]()
                if counts:
                    self.results[what].append(figures)
                rate = f"{figures.rows_per_s:,.0f} rows/s, {figures.cpu_s / figures.rows * 1e6:.1f} us CPU/row"
                self._session.say(f"{kind}, {what}: {rate}" + ("" if counts else " (warm-up)"))

    def _query(self, work: Callable[[], Any], rows: int | None = None) -> Figures:
        cpu_s, began = _tree_cpu_s(), time.perf_counter()
        work()
        seconds = time.perf_counter() - began
        return Figures(rows or self.messages, seconds, _tree_cpu_s() - cpu_s)

    def _rate(self, what: str) -> float:
        return median(figures.rows_per_s for figures in self.results[what])

    def _figures(self, what: str) -> Check:
        cpu_us = median(figures.cpu_s / figures.rows * 1e6 for figures in self.results[what])
        return Check(f"{what} ({cpu_us:.1f} us CPU/row)", self._rate(what), "rows/s")

    def _started(self) -> Any:
        """Start the session and write the rows as a Parquet file with Spark."""
        if self._spark is None:
            import firearrow.spark

            self._session.say("starting Spark, writing the rows to Parquet")
            os.environ["PYTHONPATH"] = _environment()["PYTHONPATH"]
            self._spark = firearrow.spark.session("bench", **SETTINGS)
            self._live().write.parquet(self._parquet)
            counts = [
                frame.count() for frame in (self._live(PLACE), self._store_files(PLACE), self._spark.read.parquet(self._parquet))
            ]
            if len(set(counts)) > 1:
                raise BenchError(f"live read, store scan and Parquet have {counts} rows, which should be the same number")
            self.messages = counts[0]
        return self._spark

    @property
    def _data(self) -> str:
        return str(self._home / "data")

    def _store_files(self, columns: Mapping[str, str] = ALL) -> Any:
        source = self._spark.read.format("rocketmq").option("path", self._data).option("subscribe", TOPIC)
        return source.options(**columns).load()

    def _live(self, columns: Mapping[str, str] = ALL) -> Any:
        source = self._spark.read.format("rocketmq").option("nameServer", self._name_server).option("subscribe", TOPIC)
        return source.options(**columns).load()

    def _new(self, name: str) -> Path:
        self._count += 1
        return self._home / f"{self._count}-{name}"


def _noop(frame: Any) -> Callable[[], None]:
    return lambda: frame.write.format("noop").mode("overwrite").save()


def _environment() -> dict[str, str]:
    return {"PYTHONPATH": os.pathsep.join([str(HERE.parent), *filter(None, [os.environ.get("PYTHONPATH")])])}


def _tree_cpu_s() -> float:
    """Return the CPU time used by all child processes and their children, including ended ones."""
    children: dict[int, list[int]] = defaultdict(list)
    used: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue  # it has ended
            children[int(fields[1])].append(int(entry.name))
            used[int(entry.name)] = sum(map(int, fields[11:15]))
    waiting, total = list(children[os.getpid()]), 0
    while waiting:
        pid = waiting.pop()
        total += used[pid]
        waiting += children[pid]
    return total / os.sysconf("SC_CLK_TCK")
