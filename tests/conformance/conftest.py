"""Fixtures: the server under test, the two Java clients, mqadmin, fresh topics and groups."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from tests.conformance import builds, rawcall, servers
from tests.conformance.agent import Agent
from tests.conformance.servers import Cluster
from tests.support.waiting import wait_until

_numbers = itertools.count(1)

MakeTopic = Callable[..., str]
StartCluster = Callable[..., Cluster]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip all tests with a reason if Java is missing."""
    reason = builds.missing_tools("java", "javac", "mvn")
    if reason is not None:
        for item in items:
            if "conformance" in item.path.parts:
                item.add_marker(pytest.mark.skip(reason=reason))


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "everywhere: of the client's matrix, run against Apache's servers in every run")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Parametrize the client matrix tests with their servers and client interfaces."""
    if "world" not in metafunc.fixturenames:
        return
    from tests.conformance import client_matrix  # it uses this module

    everywhere = metafunc.definition.get_closest_marker("everywhere") is not None
    pairs = client_matrix.combinations(everywhere)
    metafunc.parametrize(("matrix_server", "face"), pairs, indirect=["matrix_server"], scope="session")


@pytest.fixture(scope="session")
def matrix_server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    from tests.conformance import client_matrix

    running = servers.start(tmp_path_factory.mktemp("matrix"), client_matrix.SETTINGS, kind=request.param)
    yield running
    running.dispose()


@pytest.fixture
def world(matrix_server: Cluster, face: str) -> Any:
    from tests.conformance import client_matrix

    return client_matrix.World(matrix_server, face)


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """The server shared by most tests, with Apache's default settings."""
    running = servers.start(tmp_path_factory.mktemp("cluster"))
    yield running
    running.dispose()


@pytest.fixture
def start_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartCluster]:
    """Start further servers with given settings; they stop with the test."""
    running: list[Cluster] = []

    def start(settings: Mapping[str, str] | None = None, **options: Any) -> Cluster:
        one = servers.start(tmp_path_factory.mktemp("cluster"), settings, **options)
        running.append(one)
        return one

    yield start
    for one in running:
        one.dispose()


@pytest.fixture(scope="session")
def agents(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Agent]]:
    """One process for each client release, with its mqadmin."""
    running = {
        version: Agent(version, tmp_path_factory.mktemp(f"agent-{version}"), with_tools=True)
        for version in builds.CLIENT_VERSIONS
    }
    yield running
    for agent in running.values():
        agent.close()


@pytest.fixture(params=builds.CLIENT_VERSIONS)
def java(request: pytest.FixtureRequest, agents: dict[str, Agent]) -> Agent:
    return agents[request.param]


@pytest.fixture(scope="session")
def newest(agents: dict[str, Agent]) -> Agent:
    return agents[builds.SERVER_VERSION]


@pytest.fixture(scope="session")
def mqadmin(newest: Agent) -> Callable[..., str]:
    """Run one mqadmin command and return its output."""

    def run(*words: str) -> str:
        return newest.mqadmin([words])[0]

    return run


@pytest.fixture
def make_topic(cluster: Cluster) -> MakeTopic:
    """Create an unused topic (or change one) and wait for its route."""

    def make(read: int = 4, write: int = 4, perm: int = 6, name: str | None = None, on: Cluster | None = None) -> str:
        return topic_on(on or cluster, read, write, perm, name)

    return make


@pytest.fixture
def producer(java: Agent, cluster: Cluster) -> Iterator[str]:
    """The name of a started producer in the agent `java`."""
    name = fresh("producer")
    java.call("producer.start", name=name, namesrv=cluster.namesrv)
    yield name
    java.submit("producer.stop", name=name)


@pytest.fixture
def puller(java: Agent, cluster: Cluster) -> Iterator[str]:
    """The name of a started pull consumer in the agent `java`, with its own group."""
    name = fresh("puller")
    java.call("pull.start", name=name, group=name, namesrv=cluster.namesrv)
    yield name
    java.submit("pull.stop", name=name)


def topic_on(where: Cluster, read: int = 4, write: int = 4, perm: int = 6, name: str | None = None) -> str:
    """Create or change a topic and wait for its route."""
    topic = name or fresh("Topic")
    ext = {
        "topic": topic,
        "defaultTopic": "TBW102",
        "readQueueNums": str(read),
        "writeQueueNums": str(write),
        "perm": str(perm),
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": "0",
        "order": "false",
    }
    answer, _ = rawcall.call(where.broker, 17, ext)
    assert answer["code"] == 0, answer
    wait_until(lambda: _route_is(where.namesrv, topic, read, write, perm), f"the route of {topic}")
    return topic


def fresh(kind: str) -> str:
    """Return a name that is unique across runs."""
    return f"{kind}-{int(time.time()) % 1_000_000}-{next(_numbers)}"


def _route_is(namesrv: str, topic: str, read: int, write: int, perm: int) -> bool:
    try:
        queues = rawcall.route(namesrv, topic)["queueDatas"]
    except (LookupError, OSError):
        return False
    return all((one["readQueueNums"], one["writeQueueNums"], one["perm"]) == (read, write, perm) for one in queues)
