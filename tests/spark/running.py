"""Processes for the Spark tests: servers that can be killed and restarted, and drivers that can be killed with their children."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from firearrow import Message
from firearrow.client.sync.clients import Producer
from tests.cli.process import Started, call, route
from tests.conformance.servers import free_port
from tests.support.waiting import wait_until

PATIENCE_S = 600.0  # for operations that take seconds on an idle machine
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


class Server:
    """`firearrow up` on fixed ports."""

    def __init__(self, directory: Path, *settings: str) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory
        self._settings = [word for setting in settings for word in ("--set", setting)]
        self._ports = (free_port(), free_port(-2, 1))
        self.name_server = f"127.0.0.1:{self._ports[0]}"
        self.broker = f"127.0.0.1:{self._ports[1]}"
        self.start()

    def start(self) -> None:
        ports = ["--namesrv-port", str(self._ports[0]), "--broker-port", str(self._ports[1])]
        self._started = Started(["up", "--data", str(self.data), *ports, *self._settings], self._directory)
        self._started.line()

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
        self._started.stop()
        self._started.end()

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
    assert call(broker, 17, ext).code == 0
    wait_until(
        lambda: queues in [one["readQueueNums"] for one in route(name_server, topic).get("queueDatas", ())],
        f"the route of {topic}",
    )


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
