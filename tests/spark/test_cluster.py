"""A standalone cluster on loopback, a master and two workers with one executor of 1 GB each: every feature, and a large topic.

The topic has 50 MB by default; FIREARROW_SPARK_MEMORY_GB=5 sets the size that must work.
"""

from __future__ import annotations

import json
import os
import subprocess
import zlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from firearrow import Message
from firearrow.client.sync.clients import Producer
from tests.conformance.servers import Process, free_port
from tests.spark.running import PATIENCE_S, SPARK_ON_LOOPBACK, Driver, Server, bodies, wait_for

GB = float(os.environ.get("FIREARROW_SPARK_MEMORY_GB", "0.05"))
BODY = 10_000
WORKERS = 2
FIRST_BATCH_BYTES = 512 << 20  # the default of maxBytesPerTrigger

pytestmark = pytest.mark.timeout(2 * PATIENCE_S * (1 + GB))


@pytest.fixture
def master(tmp_path: Path) -> Iterator[str]:
    """Start a master with two workers; yield its address."""
    import pyspark

    home = Path(pyspark.__file__).parent
    env = {
        "SPARK_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_DAEMON_MEMORY": "256m", "SPARK_WORKER_DIR": str(tmp_path),
        "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    }  # fmt: skip
    port = free_port()
    address = f"spark://127.0.0.1:{port}"
    command, deploy = str(home / "bin" / "spark-class"), "org.apache.spark.deploy"
    words = ["--host", "127.0.0.1", "--webui-port", "0"]
    worker = [command, f"{deploy}.worker.Worker", *words, "--cores", "1", "--memory", "1g", address]
    processes = [
        Process([command, f"{deploy}.master.Master", *words, "--port", str(port)], tmp_path / "master.log", env),
        *(Process(worker, tmp_path / f"worker-{n}.log", env) for n in range(WORKERS)),
    ]
    try:
        for process in processes:
            process.start()
        wait_for(lambda: processes[0].output().count("Registering worker"), WORKERS, "registered workers")
        yield address
    finally:
        for process in reversed(processes):
            process.stop(PATIENCE_S)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    one = Server(tmp_path / "server")
    yield one
    one.stop()


def fill(server: Server, rows: int) -> int:
    """Return the sum of the checksums of all bodies."""
    checksum = 0
    with Producer(server.name_server, group="fill", compress_over=1 << 30, send_timeout=PATIENCE_S) as producer:
        for first in range(0, rows, 100):
            batch = [b"%010d" % n * (BODY // 10) for n in range(first, min(first + 100, rows))]
            for body in batch:
                checksum += zlib.crc32(body)
            producer.send_batch([Message("Large", body, tags="t") for body in batch])
    return checksum


def test_read_write_and_stream_on_a_cluster(master: str, server: Server, tmp_path: Path) -> None:
    rows = int(GB * (1 << 30) / BODY)
    for topic in ("Large", "StoryIn", "StoryOut"):
        server.create_topic(topic, 4)
    wanted = [rows, rows * BODY, fill(server, rows)]
    server.wait_until_flushed("Large")
    given: dict[str, Any] = {
        "nameServer": server.name_server, "path": str(server.store), "topic": "Large", "directory": str(tmp_path),
        "master": master, "executors": WORKERS,
        "conf": {**SPARK_ON_LOOPBACK, "spark_executor_memory": "1g", "spark_executor_cores": "1"},
    }  # fmt: skip

    driver = Driver(Path(__file__).with_name("story.py"), given, tmp_path)
    try:
        assert driver.wait(PATIENCE_S * (1 + GB)) == 0, driver.log[-5000:]
    except subprocess.TimeoutExpired:
        raise AssertionError(driver.log[-5000:]) from None
    finally:
        driver.kill()
    found = json.loads((tmp_path / "found.json").read_text())
    print(found)

    assert found["read"] == wanted
    assert found["scanned"] == wanted
    assert found["executors"] == WORKERS
    assert bodies(server.name_server, "StoryOut") == Counter({b"%d" % n: 1 for n in range(1000)})
    assert len(found["batches"]) >= 2
    assert found["first batch"] * BODY <= FIRST_BATCH_BYTES
