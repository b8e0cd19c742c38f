"""Fixtures of the Spark tests, and the packages each test module requires."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.spark import needs
from tests.spark.running import NO_FLOW_CONTROL, SPARK_ON_LOOPBACK

_HERE = Path(__file__).parent
_NEED_ARROW = (
    "decode/test_records.py",
    "decode/test_columns.py",
    "read/test_store_scan.py",
    "read/test_live.py",
    "write/test_sink.py",
    "write/test_message_builder.py",
    "test_live_and_files.py",
)
_OWN_PROCESSES = ("test_kills.py", "test_cluster.py", "test_first_minute.py")
_NEED_SPARK = (
    "read/test_datasource.py",
    "read/test_stream.py",
    "write/test_datasource.py",
    "test_both_brokers.py",
    *_OWN_PROCESSES,
)
_SPARK_TIMEOUT_S = 900.0  # a busy machine starts a JVM in minutes, and the first test also starts the session


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "processes: starts drivers and clusters of its own, half a minute each")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if not item.path.is_relative_to(_HERE):
            continue
        module = item.path.relative_to(_HERE).as_posix()
        if module in _OWN_PROCESSES:
            item.add_marker(pytest.mark.processes)
        if "spark" in getattr(item, "fixturenames", ()) and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(_SPARK_TIMEOUT_S))
        if module in _NEED_ARROW:
            item.add_marker(needs.arrow)
        elif module in _NEED_SPARK and needs.no_spark():
            item.add_marker(pytest.mark.skip(reason=needs.no_spark()))


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """One Spark session for all tests, because starting one takes ten seconds."""
    from firearrow.spark import session

    made = session("firearrow-tests", spark_master="local[2]", **SPARK_ON_LOOPBACK)
    made.sparkContext.setLogLevel("OFF")
    yield made
    made.stop()


@pytest.fixture
def brokers() -> Iterator[Any]:
    """Two new brokers that other processes can reach. They start in milliseconds, so every attempt of a test has its own."""
    from firearrow.testing import Cluster

    with Cluster(2, sockets=True, clock=None, properties=NO_FLOW_CONTROL) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def silent() -> Iterator[str]:
    """The address of a server that accepts connections and never replies."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"127.0.0.1:{listening.getsockname()[1]}"
