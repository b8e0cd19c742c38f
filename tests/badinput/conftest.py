"""One server for all attacks, which must survive them. A damaged server is replaced for the next test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.badinput.victim import SETTINGS
from tests.conformance import servers
from tests.conformance.servers import Cluster

Running = list[Cluster]


@pytest.fixture(scope="session")
def running() -> Iterator[Running]:
    """The current server, if any."""
    clusters: Running = []
    yield clusters
    for cluster in clusters:
        output = cluster.processes[0].output()
        assert cluster.processes[0].stop() == 0, output[-3000:]
        assert "Traceback" not in output, output[-6000:]


@pytest.fixture
def victim(running: Running, tmp_path_factory: pytest.TempPathFactory) -> Cluster:
    if running and not is_healthy(running[0]):
        running.pop().kill()
    if not running:
        settings = {**SETTINGS, "mappedFileSizeCommitLog": str(2**30)}
        running.append(servers.start_firearrow(tmp_path_factory.mktemp("victim"), settings))
    return running[0]


def is_healthy(cluster: Cluster) -> bool:
    return cluster.processes[0].alive() and (cluster.store / "commitlog").is_dir()
