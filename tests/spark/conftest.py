from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.spark import needs
from tests.spark.running import SPARK_ON_LOOPBACK

_NEED_ARROW = (
    "test_records.py",
    "test_columns.py",
    "test_store_files.py",
    "test_pulls.py",
    "test_sink.py",
    "test_messages.py",
    "test_live_and_files.py",
)
_NEED_SPARK = (
    "test_source.py",
    "test_stream.py",
    "test_kills.py",
    "test_cluster.py",
    "test_both_brokers.py",
    "test_first_minute.py",
)


_OWN_PROCESSES = ("test_kills.py", "test_cluster.py", "test_first_minute.py")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "processes: starts drivers and clusters of its own, half a minute each")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.parent.name != "spark":
            continue
        if item.path.name in _OWN_PROCESSES:
            item.add_marker(pytest.mark.processes)
        if item.path.name in _NEED_ARROW:
            item.add_marker(needs.arrow)
        elif item.path.name in _NEED_SPARK and needs.no_spark():
            item.add_marker(pytest.mark.skip(reason=needs.no_spark()))


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """One session for all tests: making one takes ten seconds."""
    from firearrow.spark import session

    made = session("firearrow-tests", spark_master="local[2]", **SPARK_ON_LOOPBACK)
    made.sparkContext.setLogLevel("OFF")
    yield made
    made.stop()


@pytest.fixture(scope="module")
def brokers() -> Iterator[Any]:
    """Two brokers that other processes can reach."""
    from firearrow.testing import Cluster

    with Cluster(2, sockets=True, clock=None) as cluster:
        yield cluster
