"""Deduplication when the driver, executors or the broker are killed (kill -9), during a write or before the commit of a batch.

One round each by default; FIREARROW_SPARK_KILL_ROUNDS sets more. FIREARROW_SPARK_KILL_SEED repeats a run.
"""

from __future__ import annotations

import os
import random
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from firearrow.spark.errors import SparkOptionError
from tests.spark.running import PATIENCE_S, SPARK_ON_LOOPBACK, Driver, Server, bodies, count, wait_for

ROUNDS = int(os.environ.get("FIREARROW_SPARK_KILL_ROUNDS", "1"))
SEED = int(os.environ.get("FIREARROW_SPARK_KILL_SEED", "0")) or random.randrange(1 << 30)
ROWS = 2_000  # per round
BATCH = 500

pytestmark = pytest.mark.timeout(PATIENCE_S * (1 + ROUNDS))


class Copy:
    """Copies the topic In to the topic Out with successive drivers."""

    def __init__(self, directory: Path, master: str, **conf: str) -> None:
        self.server = Server(directory / "server")
        self._directory = directory
        self._master = master
        self._conf = SPARK_ON_LOOPBACK | conf
        self._checkpoint = directory / "checkpoint"
        self._drivers: list[Driver] = []
        self.sent = 0

    def create_topics(self) -> None:
        self.server.create_topic("In", 2)
        self.server.create_topic("Out", 3)

    def send(self) -> None:
        self.server.send("In", [b"%d" % n for n in range(self.sent, self.sent + ROWS)])
        self.sent += ROWS

    def driver(self) -> Driver:
        """Return the running driver; start a new one if it has ended."""
        if not self._drivers or self._drivers[-1].ended():
            assert len(self._drivers) < 2 * ROUNDS + 3, self._drivers[-1].log[-5000:]
            given: dict[str, Any] = {
                "nameServer": self.server.name_server, "from": "In", "to": "Out", "checkpoint": str(self._checkpoint),
                "master": self._master, "conf": self._conf, "read": {"maxOffsetsPerTrigger": str(BATCH)},
                "write": {"sendBatchBytes": "4k"},  # many requests, so that a kill interrupts a write
            }  # fmt: skip
            self._drivers.append(Driver(Path(__file__).with_name("copy_stream.py"), given, self._directory))
        return self._drivers[-1]

    def wait_for_a_moment(self, number: int, chance: random.Random) -> Driver:
        """Send more and wait until a write is in progress, or (even numbers) complete but not committed."""
        already = count(self.server.name_server, "Out")
        if number % 2 == 0:
            self._file("hold").touch()
        self.send()
        if number % 2 == 0:
            self._wait(lambda: self._file("reached").exists(), "a micro-batch to be written")
        else:
            some = already + chance.randrange(1, ROWS - BATCH)
            self._wait(lambda: count(self.server.name_server, "Out") >= some, f"{some} rows in Out")
        return self.driver()

    def let_go(self) -> None:
        self._file("reached").unlink(missing_ok=True)
        self._file("hold").unlink(missing_ok=True)

    def wait_until_copied(self) -> None:
        self._wait(lambda: count(self.server.name_server, "Out") >= self.sent, f"{self.sent} rows in Out")

    def finish(self) -> None:
        self.wait_until_copied()
        self._file("stop").touch()
        assert self.driver().wait() == 0, self.driver().log[-5000:]

    def _wait(self, condition: Callable[[], bool], what: str) -> None:
        def now() -> bool:
            self.driver()
            try:
                return condition()
            except SparkOptionError:  # the server is starting
                return False

        wait_for(now, True, what)

    def _file(self, kind: str) -> Path:
        return self._checkpoint.with_suffix(f".{kind}")

    def check(self) -> None:
        found = bodies(self.server.name_server, "Out")
        wanted = Counter({b"%d" % n: 1 for n in range(self.sent)})
        assert found - wanted == Counter(), f"twice: {sum((found - wanted).values())} (seed {SEED})"
        assert wanted - found == Counter(), f"missing: {sum((wanted - found).values())} (seed {SEED})"

    def close(self) -> None:
        for driver in self._drivers:
            driver.kill()
        self.server.stop()


@pytest.fixture
def copy(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Copy]:
    made = Copy(tmp_path, **getattr(request, "param", {"master": "local[2]"}))
    try:
        made.create_topics()
        yield made
    finally:
        made.close()


def test_rows_are_stored_once_when_the_driver_is_killed(copy: Copy) -> None:
    chance = random.Random(SEED)
    for number in range(ROUNDS):
        copy.wait_for_a_moment(number, chance).kill()
        copy.let_go()

    copy.finish()
    copy.check()


@pytest.mark.parametrize(
    "copy", [{"master": "local-cluster[2,1,1024]", "spark_deploy_maxExecutorRetries": "-1"}], indirect=True, ids=["local-cluster"]
)
def test_rows_are_stored_once_when_an_executor_is_killed(copy: Copy) -> None:
    chance = random.Random(SEED)
    for number in range(ROUNDS):
        driver = copy.wait_for_a_moment(number + 1, chance)
        executors = driver.started("CoarseGrainedExecutorBackend")
        assert executors, driver.log[-3000:]
        os.kill(chance.choice(executors), signal.SIGKILL)
        copy.let_go()
        copy.wait_until_copied()

    copy.finish()
    copy.check()


def test_rows_are_stored_once_when_the_broker_is_killed(copy: Copy) -> None:
    chance = random.Random(SEED)
    for number in range(ROUNDS):
        copy.wait_for_a_moment(number, chance)
        copy.server.kill()
        copy.let_go()
        copy.server.start()
        copy.wait_until_copied()

    copy.finish()
    copy.check()
