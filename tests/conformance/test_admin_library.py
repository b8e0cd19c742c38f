"""Our admin library and commands on our servers and on Apache's, with equal results."""

from __future__ import annotations

import io
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from firearrow.admin.errors import AdminError, NotFoundError
from firearrow.admin.offsets import Target
from firearrow.admin.sync import Admin
from firearrow.cli.main import main
from firearrow.client.message import Message, MessageQueue, ReceivedMessage
from firearrow.client.sync.clients import Producer, PushConsumer
from tests.conformance import servers
from tests.conformance.conftest import fresh
from tests.conformance.servers import APART, TARGET, Cluster
from tests.support.waiting import wait_until

KINDS = [TARGET, *(kind for kind in APART if kind != TARGET and kind.startswith("apache"))]


@pytest.fixture(scope="module", params=KINDS)
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    running = servers.start(tmp_path_factory.mktemp("admin"), {}, kind=request.param)
    yield running
    running.dispose()


@pytest.fixture
def admin(cluster: Cluster) -> Iterator[Admin]:
    with Admin(cluster.namesrv) as admin:
        yield admin


@pytest.fixture
def topic(admin: Admin) -> str:
    name = fresh("Admin")
    admin.create_topic(name, queues=1)
    return name


def send(cluster: Cluster, topic: str, *bodies: bytes, **more: Any) -> list[str]:
    with Producer(cluster.namesrv, group=fresh("p")) as producer:
        return [producer.send(Message(topic, body, **more)).msg_id for body in bodies]


def consumed(cluster: Cluster, group: str, topic: str, count: int) -> None:
    """Consume `count` messages with a consumer of the group and stop it."""
    taken: list[bytes] = []

    def take(message: ReceivedMessage) -> None:
        taken.append(message.body)

    with PushConsumer(cluster.namesrv, group=group, subscribe={topic: "*"}, listener=take, start_from="earliest"):
        wait_until(lambda: len(taken) >= count, "the messages")


def test_topics(cluster: Cluster, admin: Admin) -> None:
    topic = fresh("Made")
    assert admin.create_topic(topic, queues=2) == [cluster.broker_name]
    with pytest.raises(AdminError, match="already exists"):
        admin.create_topic(topic)
    admin.alter_topic(topic, perm=4, read_queues=3)
    config = admin.topic_configs(topic)[cluster.broker_name]
    assert (config.perm, config.read_queue_nums, config.write_queue_nums) == (4, 3, 2)
    assert topic in [one.topic for one in admin.list_topics()]
    assert [one.queue_id for one in admin.topic_status(topic)][:2] == [0, 1]  # 4.9 lists write queues only
    assert admin.delete_topic(topic) == [cluster.broker_name]
    with pytest.raises(NotFoundError):
        admin.topic_configs(topic)


def test_messages(cluster: Cluster, admin: Admin, topic: str) -> None:
    first, second = send(cluster, topic, b"one", b"two", tags="t", keys="k1 k2")
    wait_until(lambda: len(admin.messages_by_key(topic, "k1")) == 2, "the index")
    message = admin.find_message(topic, first)
    assert (message.body, message.tags, message.keys) == (b"one", "t", ("k1", "k2"))
    assert admin.find_message(topic, message.offset_msg_id).msg_id == first
    assert admin.message_at(MessageQueue(topic, cluster.broker_name, 0), 1).msg_id == second
    ago = datetime.now(UTC) - timedelta(hours=1)
    assert [one.msg_id for one in admin.messages_between(topic, begin=ago)] == [first, second]
    assert admin.messages_between(topic, end=ago) == []
    assert [one.msg_id for one in admin.peek(topic, 1)] == [second]
    admin.resend(message)
    assert [one.body for one in admin.peek(topic, 1)] == [b"one"]


def test_groups_and_offsets(cluster: Cluster, admin: Admin, topic: str) -> None:
    group, other = fresh("group"), fresh("group")
    queue = MessageQueue(topic, cluster.broker_name, 0)
    admin.create_group(group, {"retry_max_times": 3})
    admin.create_group(other)
    assert admin.group_configs(group)[cluster.broker_name].retry_max_times == 3
    admin.alter_group(group, {"retry_max_times": 5})
    assert admin.group_configs(group)[cluster.broker_name].retry_max_times == 5
    send(cluster, topic, b"1", b"2", b"3")
    consumed(cluster, group, topic, 3)
    wait_until(lambda: admin.committed_offset(group, queue) == 3, "the offset")
    (progress,) = admin.group_progress(group, topic=topic)
    assert (progress.broker_offset, progress.consumer_offset, progress.lag) == (3, 3, 0)
    assert group in admin.topic_groups(topic)
    wait_until(lambda: [one.members for one in admin.list_groups() if one.group == group] == [0], "the member is gone")
    an_hour_ago = datetime.now(UTC) - timedelta(hours=1)
    targets: list[tuple[Target, int]] = [("earliest", 0), ("latest", 3), (1, 1), (an_hour_ago, 0)]
    for to, offset in targets:
        (change,) = admin.reset_offset(group, topic, to)
        assert change.after == offset
        assert admin.committed_offset(group, queue) == offset
    admin.clone_offsets(group, other, topic)
    assert admin.committed_offset(other, queue) == 0
    admin.delete_group(other)
    assert other not in admin.group_names()


def test_a_member_is_asked_and_reset(cluster: Cluster, admin: Admin, topic: str) -> None:
    group = fresh("group")
    (msg_id,) = send(cluster, topic, b"once")
    taken: list[bytes] = []

    def take(message: ReceivedMessage) -> None:
        taken.append(message.body)

    with PushConsumer(
        cluster.namesrv, group=group, subscribe={topic: "*"}, listener=take, start_from="earliest", persist_offset_interval=0.5
    ):
        wait_until(lambda: len(taken) == 1, "the message")
        wait_until(lambda: admin.committed_offset(group, MessageQueue(topic, cluster.broker_name, 0)) == 1, "the offset")
        (member,) = admin.consumer_connection(group).connection_set
        info = admin.running_info(group, member.client_id)
        assert [one.queue_id for one in info.mq_table if one.topic == topic] == [0]
        message = admin.find_message(topic, msg_id)
        assert [one.status for one in admin.track(message) if one.group == group] == ["CONSUMED"]
        assert admin.consume_directly(group, message).consume_result == "CR_SUCCESS"
        wait_until(lambda: len(taken) == 2, "the message once more")
        admin.reset_offset(group, topic, "earliest")
        wait_until(lambda: len(taken) >= 3, "the message after the reset")


def test_dead_letters(cluster: Cluster, admin: Admin, topic: str) -> None:
    from firearrow.client.consumer.listener import RetryLater

    group = fresh("group")
    send(cluster, topic, b"bad")
    failed: list[str] = []

    def fail(message: ReceivedMessage) -> None:
        failed.append(message.msg_id)
        raise RetryLater(-1)

    with PushConsumer(cluster.namesrv, group=group, subscribe={topic: "*"}, listener=fail, start_from="earliest"):
        wait_until(lambda: group in [one.group for one in admin.dead_letter_counts()], "the dead letter")
    (letter,) = admin.dead_letters_of(group)
    assert (letter.body, letter.topic) == (b"bad", topic)
    taken: list[bytes] = []

    def take(message: ReceivedMessage) -> None:
        taken.append(message.body)

    with PushConsumer(cluster.namesrv, group=group, subscribe={topic: "*"}, listener=take):
        assert admin.resend_dead_letters([letter]).sent == 1
        wait_until(lambda: taken == [b"bad"], "the dead letter once more")


def test_servers(cluster: Cluster, admin: Admin) -> None:
    (broker,) = admin.list_brokers()
    assert broker.address == cluster.broker
    assert int(admin.broker_status(broker.address)["commitLogMaxOffset"]) >= 0
    assert admin.broker_config(broker.address)["brokerName"] == cluster.broker_name
    admin.set_broker_config(broker.address, {"fileReservedTime": "48"})
    assert admin.broker_config(broker.address)["fileReservedTime"] == "48"
    assert cluster.namesrv in admin.name_server_config()
    admin.kv_put("n", "k", "v")
    assert (admin.kv_get("n", "k"), admin.kv_list("n")) == ("v", {"k": "v"})
    admin.kv_delete("n", "k")
    assert admin.kv_get("n", "k") is None
    assert all(count >= 0 for count in admin.wipe_write_permission(cluster.broker_name).values())
    admin.add_write_permission(cluster.broker_name)
    admin.clean_expired_queues(broker.address)


def test_commands(cluster: Cluster, topic: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    lines = [
        "topic list --all", f"topic show {topic}", f"topic route {topic}", f"topic status {topic}", "group list --all",
        "broker list", f"broker status {cluster.broker_name}", "cluster list", "client list --consumers",
        f"config get --broker {cluster.broker_name}", "config get --name-servers", f"message peek {topic}",
        "mqadmin clusterList", "mqadmin topicList", f"mqadmin topicRoute -t {topic}", f"mqadmin topicStatus -t {topic}",
        "mqadmin consumerProgress", f"mqadmin brokerStatus -b {cluster.broker}", f"mqadmin statsAll -t {topic}",
    ]  # fmt: skip
    for line in lines:
        with pytest.raises(SystemExit) as end:
            main([*line.split(), "-n", cluster.namesrv])
        assert end.value.code == 0, (line, capsys.readouterr().err)
    capsys.readouterr()
    with pytest.raises(SystemExit):
        main(["doctor", "-n", cluster.namesrv])
    assert "checked 1 name server, 1 address, 1 broker" in capsys.readouterr().out
