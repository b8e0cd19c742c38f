"""Processes for the Spark tests: servers that can be killed and restarted, and drivers that can be killed with their children."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from firearrow import Message
from firearrow.client.sync.clients import Producer
from firearrow.store.checkpoint import Checkpoint
from tests.cli.process import Started
from tests.conformance import rawcall
from tests.conformance.servers import free_port

PATIENCE_S = 600.0  # for operations that take seconds on an idle machine
_POLL_S = 0.1  # a poll may be a Spark job, and other processes need the processor
# A broker on a busy machine must not reject the messages of a test.
NO_FLOW_CONTROL = {"brokerFastFailureEnable": "false", "osPageCacheBusyTimeOutMills": "600000"}
SPARK_ON_LOOPBACK = {
    "spark_ui_enabled": "false",
    "spark_driver_memory": "1g",
    "spark_sql_shuffle_partitions": "2",
    "spark_driver_host": "127.0.0.1",
    "spark_driver_bindAddress": "127.0.0.1",
    # For short-lived processes: less JIT compilation halves the start time.
    "spark_driver_extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark_executor_extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}

_numbers = itertools.count(1)


def fresh(name: str) -> str:
    """Return a name that no test of this process has used, so that a repeated test does not find what the first attempt left."""
    return f"{name}-{next(_numbers)}"


def wait_for(read: Callable[[], Any], wanted: Any, what: str, timeout_s: float = PATIENCE_S) -> None:
    """Wait until `read()` returns `wanted`; fail with the last value after `timeout_s`."""
    deadline = time.monotonic() + timeout_s
    while (found := read()) != wanted:
        assert time.monotonic() < deadline, f"{what}: {found!r} instead of {wanted!r} after {timeout_s:g} s"
        time.sleep(_POLL_S)


def wait_for_queue_files(store: Path, topics: Iterable[str]) -> None:
    """Wait until the broker has created the consume-queue files of these topics.

    A broker creates them in the background, behind its disk syncs. A store scan rejects a topic without them as misspelt.
    """
    wanted = set(topics)

    def missing() -> set[str]:
        return {topic for topic in wanted if not (store / "consumequeue" / topic).is_dir()}

    wait_for(missing, set(), "topics without consume-queue files")


def finish(query: Any) -> None:
    """Wait until a query with an end has ended; raise its error. It does not outlive the test."""
    try:
        assert query.awaitTermination(PATIENCE_S), "the query did not end"
    finally:
        query.stop()


class Server:
    """`firearrow up` on fixed ports."""

    def __init__(self, directory: Path, *settings: str) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory
        every = [*(f"{name}={value}" for name, value in NO_FLOW_CONTROL.items()), *settings]
        self._settings = [word for setting in every for word in ("--set", setting)]
        self._ports = (free_port(), free_port(-2, 1))
        self.name_server = f"127.0.0.1:{self._ports[0]}"
        self.broker = f"127.0.0.1:{self._ports[1]}"
        self.start()

    def start(self) -> None:
        ports = ["--namesrv-port", str(self._ports[0]), "--broker-port", str(self._ports[1])]
        self._started = Started(["up", "--data", str(self.data), *ports, *self._settings], self._directory)
        try:
            self._started.line()
        except BaseException:
            self._started.end()
            raise

    @property
    def data(self) -> Path:
        return self._directory / "data"

    @property
    def store(self) -> Path:
        return next(path.parent for path in self.data.rglob("commitlog"))

    def kill(self) -> None:
        self._started.stop(signal.SIGKILL)
        self._started.end()

    def stop(self) -> None:
        self._started.process.terminate()
        self._started.process.wait(PATIENCE_S)  # it syncs its files, which a busy disk delays
        self._started.end()

    def wait_until_flushed(self, *topics: str) -> None:
        """Wait until a scan of the store finds everything that was sent so far."""
        answer, body = rawcall.call(self.broker, 28)
        assert answer["code"] == 0, answer
        end = int(json.loads(body)["table"]["commitLogMaxOffset"])
        checkpoint = self.store / "checkpoint"
        wait_for(lambda: Checkpoint.decode(checkpoint.read_bytes()).flushed_offset >= end, True, f"a flushed offset of {end}")
        wait_for_queue_files(self.store, topics)

    def create_topic(self, topic: str, queues: int) -> None:
        create_topic(self.broker, self.name_server, topic, queues)

    def send(self, topic: str, bodies: list[bytes]) -> None:
        with Producer(self.name_server, group="fill", send_timeout=60) as producer:
            for sent in [producer.send_nowait(Message(topic, body)) for body in bodies]:
                sent.result()


def create_topic(broker: str, name_server: str, topic: str, queues: int) -> None:
    """Create or change a topic and wait until the name server knows it."""
    ext = {"topic": topic, "defaultTopic": "TBW102", "readQueueNums": str(queues), "writeQueueNums": str(queues), "perm": "6"}
    ext |= {"topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false"}
    answer, _ = rawcall.call(broker, 17, ext, timeout_s=PATIENCE_S)
    assert answer["code"] == 0, answer
    wait_for(lambda: queues in read_queues(name_server, topic), True, f"the route of {topic}")


def read_queues(name_server: str, topic: str) -> list[int]:
    """Return the number of readable queues on each broker with the topic, as the name server knows it."""
    try:
        return [one["readQueueNums"] for one in rawcall.route(name_server, topic)["queueDatas"]]
    except (LookupError, OSError):
        return []


def count(name_server: str, topic: str) -> int:
    """Return the number of messages in the queues of a topic."""
    from firearrow.spark.cluster import cluster_client

    servers = cluster_client(_options(name_server, topic).client())
    queues = servers.queues([topic])
    return sum(servers.max_offsets(queues).values()) - sum(servers.min_offsets(queues).values())


def bodies(name_server: str, topic: str) -> Counter[bytes]:
    from tests.spark.read.test_live import everything, read

    options = _options(name_server, topic)
    return Counter(one["body"] for one in read(everything(None, options), options, ["body"]))


def _options(name_server: str, topic: str) -> Any:
    from firearrow.spark.options import read_options

    return read_options({"nameServer": name_server, "subscribe": topic})


class Driver:
    """A Python program that uses Spark. It leads a process session, so that all its children can be found and ended."""

    def __init__(self, program: Path, given: dict[str, Any], directory: Path, **env: str) -> None:
        self.log_path = directory / f"driver-{time.monotonic_ns()}.log"
        with self.log_path.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, str(program), json.dumps(given)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=directory,
                env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_WORKER_DIR": str(directory / "work"), **env},
                start_new_session=True,
            )

    def ended(self) -> bool:
        return self.process.poll() is not None

    @property
    def log(self) -> str:
        return self.log_path.read_text(errors="replace")

    def wait(self, patience_s: float = PATIENCE_S) -> int:
        return self.process.wait(patience_s)

    def started(self, word: str = "") -> list[int]:
        """Return the processes of its session with this word in their command line."""
        found = []
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            with contextlib.suppress(OSError):
                if os.getsid(int(entry.name)) == self.process.pid and word in (entry / "cmdline").read_text(errors="replace"):
                    found.append(int(entry.name))
        return found

    def kill(self) -> None:
        """Kill the driver and all its children."""
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()
        while left := self.started():
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self.process.poll()  # reap the process, which otherwise stays in the session
            time.sleep(0.01)
        self.process.wait(PATIENCE_S)
