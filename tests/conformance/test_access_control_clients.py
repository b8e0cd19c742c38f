"""Apache's Java clients with AclClientRPCHook against servers with access control.

Users have the minimal policies of docs/operate/security.md: a producer Pub on its topic, a consumer Sub and Get on the topic
and Sub on its group.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

import pytest

from firearrow.admin.sync import Admin
from firearrow.client.options import Credentials
from tests.conformance import servers
from tests.conformance.agent import Agent, AgentError
from tests.conformance.conftest import fresh
from tests.conformance.servers import PATIENCE_MS, Cluster
from tests.support.waiting import wait_until

NO_PERMISSION: Final = 16
NO_ROUTE: Final = 10005  # the Java client's own code
ROOT: Final = Credentials("rootuser", "12345678")
SECRET: Final = "a secret key"
SETTINGS: Final = {
    "authenticationEnabled": "true",
    "authorizationEnabled": "true",
    "initAuthenticationUser": '{"username":"rootuser","password":"12345678"}',
    "innerClientAuthenticationCredentials": '{"accessKey":"inneruser","secretKey":"12345678"}',
    "transactionCheckInterval": "1000",
    "transactionTimeOut": "1500",
}
GET_ROUTEINFO_BY_TOPIC: Final = "105"
pytestmark = pytest.mark.skipif(servers.TARGET != "firearrow", reason="the settings are ours")

Keys = dict[str, str]


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    running = servers.start(tmp_path_factory.mktemp("guarded"), SETTINGS)
    yield running
    running.dispose()


@pytest.fixture(scope="module")
def open_routes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Servers whose routes need no signature, as on Apache's name servers: every client reaches the broker."""
    running = servers.start(tmp_path_factory.mktemp("open"), SETTINGS | {"authenticationWhitelist": GET_ROUTEINFO_BY_TOPIC})
    yield running
    running.dispose()


class Clients:
    """Clients in an agent for servers with access control. They stop with the test."""

    def __init__(self, java: Agent, cluster: Cluster, admin: Admin) -> None:
        self.java = java
        self.cluster = cluster
        self.admin = admin
        self._started: list[tuple[str, str]] = []
        self._readers: dict[str, str] = {}

    def topic(self) -> str:
        topic = fresh("Guarded")
        self.admin.create_topic(topic, queues=1)
        return topic

    def user(self, policies: dict[str, list[str]]) -> Keys:
        """Create a user with actions on resources and return its keys."""
        name = fresh("user")
        self.admin.create_user(name, SECRET)
        for resource, actions in policies.items():
            self.admin.create_acl(name, [resource], actions, broker=self.cluster.broker)
        return {"accessKey": name, "secretKey": SECRET}

    def producer_of(self, topic: str) -> Keys:
        return self.user({f"Topic:{topic}": ["Pub"]})

    def consumer_of(self, topic: str, group: str) -> Keys:
        return self.user({f"Topic:{topic}": ["Sub", "Get"], f"Group:{group}": ["Sub"]})

    def start(self, kind: str, keys: Keys, **fields: Any) -> str:
        """Start a client of a kind of the agent ("producer", "push", ...) and return its name."""
        name = fresh(kind)
        self.java.call(f"{kind}.start", **{"name": name, "group": name, "namesrv": self.cluster.namesrv} | keys | fields)
        self._started.append((kind, name))
        return name

    def send(self, keys: Keys, topic: str, *bodies: str, mode: str = "sync", **fields: Any) -> Any:
        producer = self.start("producer", keys, retries=0, **fields)
        messages = [{"body": body} for body in bodies]
        return self.java.call("producer.send", name=producer, topic=topic, messages=messages, mode=mode)

    def queue(self, topic: str) -> dict[str, Any]:
        return {"topic": topic, "broker": self.cluster.broker_name, "queueId": 0}

    def stored(self, topic: str) -> list[str]:
        """Pull all messages of a topic as a user with a consumer's policies."""
        if topic not in self._readers:
            group = fresh("reader")
            self._readers[topic] = self.start("pull", self.consumer_of(topic, group), group=group)
        return sorted(message["body"] for message in self.java.call("pull.all", name=self._readers[topic], topic=topic))

    def stop(self) -> None:
        for kind, name in self._started:
            self.java.submit(f"{kind}.stop", name=name)


@pytest.fixture
def connect(java: Agent) -> Iterator[Callable[[Cluster], Clients]]:
    running: list[Clients] = []

    def connect(cluster: Cluster) -> Clients:
        admin = Admin(cluster.namesrv, credentials=ROOT)
        admin.__enter__()
        running.append(Clients(java, cluster, admin))
        return running[-1]

    yield connect
    for one in running:
        one.stop()
        one.admin.__exit__(None, None, None)


@pytest.fixture
def clients(connect: Callable[[Cluster], Clients], guarded: Cluster) -> Clients:
    return connect(guarded)


def codes(results: list[dict[str, Any]]) -> list[int | None]:
    return [result.get("code") for result in results]


def refusal(call: Callable[[], object]) -> AgentError:
    """Return the error of a call that the servers must refuse."""
    with pytest.raises(AgentError) as caught:
        call()
    assert caught.value.code == NO_PERMISSION, caught.value.trace
    return caught.value


def test_producer_with_pub_on_its_topic_sends_in_every_mode(clients: Clients) -> None:
    topic = clients.topic()
    keys = clients.producer_of(topic)

    results = [*clients.send(keys, topic, "sync 1", "sync 2"), *clients.send(keys, topic, "async", mode="async")]
    results.append(clients.send(keys, topic, "batch 1", "batch 2", mode="batch"))
    clients.send(keys, topic, "one-way", mode="oneway")
    results += clients.send(keys, topic, "fast port", vip=True)

    assert [result.get("status") for result in results] == ["SEND_OK"] * 5, results
    expected = ["async", "batch 1", "batch 2", "fast port", "one-way", "sync 1", "sync 2"]
    wait_until(lambda: clients.stored(topic) == expected, "all messages")


def test_producer_is_refused_on_other_topics(clients: Clients) -> None:
    topic, other = clients.topic(), clients.topic()
    keys = clients.producer_of(topic)

    sent = clients.send(keys, other, "sync") + clients.send(keys, other, "async", mode="async")
    batch = refusal(lambda: clients.send(keys, other, "1", "2", mode="batch"))
    transactional = clients.start("tran", keys)
    half = refusal(lambda: clients.java.call("tran.send", name=transactional, topic=other, messages=[{"body": "half"}]))

    assert codes(sent) == [NO_PERMISSION] * 2
    for text in (*(result["trace"] for result in sent), batch.trace, half.trace):
        assert f"User:{keys['accessKey']} has no permission to access Topic:{other} from 127.0.0.1" in text
    assert clients.stored(other) == []


def test_transactions_need_pub_on_the_topic_only(clients: Clients) -> None:
    topic = clients.topic()
    producer = clients.start("tran", clients.producer_of(topic))
    clients.java.call("tran.answer", name=producer, answer="commit")
    messages = [{"body": local, "local": local} for local in ("commit", "rollback", "unknown")]

    results = clients.java.call("tran.send", name=producer, topic=topic, messages=messages)

    assert [result["status"] for result in results] == ["SEND_OK"] * 3
    # The broker asks for the outcome of the third one; the answer is signed like any request.
    wait_until(lambda: clients.stored(topic) == ["commit", "unknown"], "the committed messages")


@pytest.mark.parametrize("orderly", [False, True])
def test_push_consumer_with_minimal_policies_consumes_and_retries(clients: Clients, orderly: bool) -> None:
    topic, group = clients.topic(), fresh("group")
    clients.send(clients.producer_of(topic), topic, "first", "second")
    keys = clients.consumer_of(topic, group)

    fail = [{"body": "first", "times": 1}]
    options = {"orderly": orderly, "persistMs": 200, "pollNameServerMs": 1_000}
    consumer = clients.start("push", keys, group=group, topics={topic: "*"}, fail=fail, **options)

    received = clients.java.consumed(consumer, 2)
    assert sorted(one["body"] for one in received if not one["refused"]) == ["first", "second"], received
    assert [one["body"] for one in received if one["refused"]] == ["first"]
    puller = clients.start("pull", keys, group=group)
    queue = clients.queue(topic)
    wait_until(lambda: clients.java.call("pull.committed", name=puller, queue=queue) == 2, "the committed offset")


def test_push_consumer_without_permission_gets_nothing(clients: Clients) -> None:
    topic, other, group = clients.topic(), clients.topic(), fresh("group")
    clients.send(clients.producer_of(other), other, "not for you")
    keys = clients.consumer_of(topic, group)

    # The client asks the broker about a subscription at its start only if that has an SQL filter.
    error = refusal(lambda: clients.start("push", keys, group=group, topics={other: "a > 1"}, sql=True))
    assert f"has no permission to access Topic:{other}" in error.message
    consumer = clients.start("push", keys, group=group, topics={other: "*"})

    (process,) = clients.cluster.processes
    refused = f"request 34 of user '{keys['accessKey']}'"
    wait_until(lambda: refused in process.output(), "the refused heartbeat in the log")
    assert clients.java.call("push.stop", name=consumer) == []


def test_pull_consumers_with_minimal_policies(clients: Clients) -> None:
    topic, group = clients.topic(), fresh("group")
    clients.send(clients.producer_of(topic), topic, "only")
    keys, queue = clients.consumer_of(topic, group), clients.queue(topic)

    puller = clients.start("pull", keys, group=group)
    call = clients.java.call
    assert [one["queueId"] for one in call("pull.queues", name=puller, topic=topic)] == [0]
    assert (call("pull.min", name=puller, queue=queue), call("pull.max", name=puller, queue=queue)) == (0, 1)
    assert call("pull.search", name=puller, queue=queue, timestamp=0) == 0
    (message,) = call("pull.pull", name=puller, queue=queue)["messages"]
    assert call("pull.view", name=puller, topic=topic, msgId=message["msgId"])["body"] == "only"
    call("pull.commit", name=puller, queue=queue, offset=1)
    wait_until(lambda: call("pull.committed", name=puller, queue=queue) == 1, "the committed offset")

    group = fresh("group")
    lite = clients.start("lite", clients.consumer_of(topic, group), group=group, topic=topic)
    assert [one["body"] for one in call("lite.poll", name=lite, count=1, timeoutMs=PATIENCE_MS)] == ["only"]


def test_pull_consumer_is_refused_on_other_topics_and_groups(clients: Clients) -> None:
    topic, other, group = clients.topic(), clients.topic(), fresh("group")
    keys = clients.consumer_of(topic, group)

    own, strange = clients.start("pull", keys, group=group), clients.start("pull", keys, group=fresh("group"))
    for operation in ("pull.pull", "pull.min", "pull.max", "pull.search"):
        error = refusal(partial(clients.java.call, operation, name=own, queue=clients.queue(other)))
        assert f"Topic:{other}" in error.trace, error.trace
    # The Java client logs the refusal and reports an unknown offset, -1 or -2 depending on the release.
    assert clients.java.call("pull.committed", name=own, queue=clients.queue(other)) < 0
    error = refusal(lambda: clients.java.call("pull.pull", name=strange, queue=clients.queue(topic)))
    assert "has no permission to access Group:" in error.trace


def test_requests_and_replies_with_minimal_policies(clients: Clients) -> None:
    topic, group = clients.topic(), fresh("group")
    clients.start("replier", clients.consumer_of(topic, group), group=group, topic=topic)
    requester = clients.start("requester", clients.producer_of(topic))

    messages = [{"body": "how much?"}]
    (answer,) = clients.java.call("requester.ask", name=requester, topic=topic, messages=messages, timeoutMs=PATIENCE_MS)

    assert answer.get("body") == "re:how much?", answer


WRONG: Final = {
    "wrong secret": ("{user}", "another secret", "check signature failed."),
    "unknown user": ("nobody", SECRET, "User:nobody is not found."),
    "no credentials": (None, "", "username cannot be null."),
}


def keys_of(case: str, user: str) -> tuple[Keys, str]:
    name, secret, remark = WRONG[case]
    return ({} if name is None else {"accessKey": name.format(user=user), "secretKey": secret}), remark


@pytest.mark.parametrize("case", list(WRONG))
def test_broker_refuses_clients_without_valid_credentials(
    connect: Callable[[Cluster], Clients], open_routes: Cluster, case: str
) -> None:
    clients = connect(open_routes)
    topic, group = clients.topic(), fresh("group")
    user = clients.user({f"Topic:{topic}": ["All"], f"Group:{group}": ["All"]})["accessKey"]
    keys, remark = keys_of(case, user)

    sent = clients.send(keys, topic, "sync") + clients.send(keys, topic, "async", mode="async")
    transactional, puller = clients.start("tran", keys), clients.start("pull", keys, group=group)
    messages = [{"body": "half"}]
    errors = [
        refusal(lambda: clients.send(keys, topic, "1", "2", mode="batch")),
        refusal(lambda: clients.java.call("tran.send", name=transactional, topic=topic, messages=messages)),
        refusal(lambda: clients.java.call("pull.pull", name=puller, queue=clients.queue(topic))),
        refusal(lambda: clients.start("push", keys, group=group, topics={topic: "a > 1"}, sql=True)),
    ]

    assert codes(sent) == [NO_PERMISSION] * 2
    for text in (*(result["trace"] for result in sent), *(error.trace for error in errors)):
        assert remark in text
    assert clients.stored(topic) == []


@pytest.mark.parametrize("case", list(WRONG))
def test_name_server_refuses_clients_without_valid_credentials(clients: Clients, case: str) -> None:
    topic = clients.topic()
    keys, remark = keys_of(case, clients.producer_of(topic)["accessKey"])

    (sent,) = clients.send(keys, topic, "sync")
    puller = clients.start("pull", keys)
    error = refusal(lambda: clients.java.call("pull.queues", name=puller, topic=topic))

    # The Java producer logs why the route was refused and reports that it has no route.
    assert sent["code"] == NO_ROUTE, sent
    assert remark in error.trace
