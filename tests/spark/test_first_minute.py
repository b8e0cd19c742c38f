"""First use: a missing Java runtime, and the time to the first rows."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.spark.running import SPARK_ON_LOOPBACK, Driver, Server

QUICK_S = 25.0
FIRST_QUERY = """
import json, sys
import firearrow.spark

given = json.loads(sys.argv[1])
spark = firearrow.spark.session(**given["conf"])
spark.read.format("rocketmq").option("nameServer", given["nameServer"]).option("subscribe", "Orders").load().show()
"""


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        ({}, "Spark needs Java 17 or later, which was not found: install it (Debian: apt-get install default-jre-headless)"),
        ({"JAVA_HOME": "/no/such/java"}, "JAVA_HOME is '/no/such/java', but bin/java is missing there"),
    ],
)
def test_missing_java_is_reported_with_what_to_install(tmp_path: Path, env: dict[str, str], expected: str) -> None:
    kept = {name: value for name, value in os.environ.items() if name not in ("JAVA_HOME", "PATH")}
    began = time.monotonic()

    done = subprocess.run(
        [sys.executable, "-c", "import firearrow.spark; firearrow.spark.session()"],
        env={**kept, "PATH": str(tmp_path), **env},
        capture_output=True,
        check=False,
        text=True,
        timeout=60,
    )

    assert done.returncode == 1
    assert expected in done.stderr.splitlines()[-1]
    assert time.monotonic() - began < QUICK_S


def test_first_query_prints_rows_within_the_limit(tmp_path: Path) -> None:
    server = Server(tmp_path / "server")
    program = tmp_path / "first.py"
    program.write_text(FIRST_QUERY)
    idle = os.getloadavg()[0] < 0.5 * (os.cpu_count() or 1)
    try:
        server.create_topic("Orders", 4)
        server.send("Orders", [b"%d" % n for n in range(100)])
        given = {"nameServer": server.name_server, "conf": {**SPARK_ON_LOOPBACK, "spark_master": "local[*]"}}
        began = time.monotonic()
        driver = Driver(program, json.loads(json.dumps(given)), tmp_path)
        try:
            assert driver.wait() == 0, driver.log[-3000:]
        finally:
            driver.kill()
        took = time.monotonic() - began
    finally:
        server.stop()

    print(f"the first rows after {took:.1f} s")
    assert "only showing top 20 rows" in driver.log
    if idle:  # a machine that is busy with something else takes as long as it takes
        assert took < QUICK_S
