"""The topic table: initial content, creation by sends and operators, persistence and listeners."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from firearrow.broker.requests.responses import Refused
from firearrow.broker.settings import BrokerSettings
from firearrow.broker.tables.persistence import run_at_once
from firearrow.broker.tables.topics import StoredTopic, TopicTable, alter_attributes, parse_attribute_changes
from firearrow.wire import fastjson
from firearrow.wire.bodies.topic import DataVersion, TopicConfig
from firearrow.wire.headers.client import SendMessageRequestHeader

NOW = 1_700_000_000_000


class Story:
    """A table with everything that left it."""

    def __init__(
        self,
        *,
        group_exists: Callable[[str], bool] = lambda group: True,
        stored: tuple[StoredTopic, ...] = (),
        submit: Callable[[Callable[[], None]], None] = run_at_once,
        **settings: Any,
    ) -> None:
        self.saved: list[dict[str, Any]] = []
        self.heard: list[tuple[str, TopicConfig | None, DataVersion]] = []
        self.settings = BrokerSettings(broker_cluster_name="C", broker_name="b", **settings)
        self.topics = TopicTable(
            self.settings,
            lambda table: self.saved.append(fastjson.loads(fastjson.dumps_pretty(table))),
            group_exists=group_exists,
            stored=lambda: stored,
            submit=submit,
        )
        self.topics.subscribe(lambda topic, config: self.heard.append((topic, config, self.topics.data_version)))

    def started(self) -> Story:
        self.topics.add_system_topics(NOW)
        self.saved.clear()
        return self


def send(topic: str, template: str = "TBW102", queues: int = 4) -> SendMessageRequestHeader:
    ext = {"a": "P", "b": topic, "c": template, "d": str(queues), "e": "0", "f": "0", "g": "0", "h": "0"}
    return SendMessageRequestHeader.decode(ext)


def refusal(wanted: Any, *args: Any, **kwargs: Any) -> Refused:
    with pytest.raises(Refused) as caught:
        wanted(*args, **kwargs)
    return caught.value


def test_a_new_broker_has_the_system_topics_and_has_saved_them() -> None:
    story = Story()
    story.topics.add_system_topics(NOW)
    found = {name: (config.read_queue_nums, config.write_queue_nums, config.perm) for name, config in story.topics.all().items()}
    assert found == {
        "SELF_TEST_TOPIC": (1, 1, 6),
        "TBW102": (8, 8, 7),
        "BenchmarkTest": (1024, 1024, 6),
        "C": (16, 16, 7),
        "b": (1, 1, 7),
        "OFFSET_MOVED_EVENT": (1, 1, 6),
        "SCHEDULE_TOPIC_XXXX": (18, 18, 6),
        "C_REPLY_TOPIC": (1, 1, 6),
        "rmq_sys_REVIVE_LOG_C": (8, 8, 6),
        "rmq_sys_SYNC_BROKER_MEMBER_b": (1, 1, 1),
        "RMQ_SYS_TRANS_HALF_TOPIC": (1, 1, 6),
        "RMQ_SYS_TRANS_OP_HALF_TOPIC": (1, 1, 6),
        "rmq_sys_wheel_timer": (1, 1, 6),
    }
    assert len(story.saved) == 1
    story.topics.add_system_topics(NOW + 1)
    assert len(story.saved) == 1, "nothing changed, so nothing is written"


def test_topics_survive_a_restart_with_their_version() -> None:
    before = Story().started()
    before.topics.update(TopicConfig("Orders", 8, 4, 6, order=True), NOW, alter={"+message.type": "FIFO"})
    after = Story()
    after.topics.load(before.saved[-1])
    after.topics.add_system_topics(NOW)
    assert after.topics.find("Orders") == TopicConfig("Orders", 8, 4, 6, order=True, attributes={"message.type": "FIFO"})
    assert after.topics.data_version == before.topics.data_version
    assert after.saved == []


def test_sending_to_an_unknown_topic_makes_it_from_the_template() -> None:
    story = Story().started()
    assert story.topics.for_send(send("Orders", queues=4), NOW) == TopicConfig("Orders", 4, 4, 6)
    assert story.topics.for_send(send("Many", queues=100), NOW) == TopicConfig("Many", 8, 8, 6)  # no more than the template has
    assert story.topics.for_send(send("GoBatch", template="", queues=0), NOW) == TopicConfig("GoBatch", 4, 4, 6)
    assert story.topics.for_send(send("FromCluster", template="C"), NOW).write_queue_nums == 4
    assert [topic for topic, _, _ in story.heard] == ["Orders", "Many", "GoBatch", "FromCluster"]
    assert story.saved[-1]["topicConfigTable"]["Orders"]["perm"] == 6


def test_the_second_send_finds_the_topic_and_changes_nothing() -> None:
    story = Story().started()
    story.topics.for_send(send("Orders"), NOW)
    version = story.topics.data_version
    story.topics.for_send(send("Orders", queues=1), NOW + 1)
    assert story.topics.data_version == version
    assert len(story.saved) == 1


def test_without_auto_creation_the_refusal_names_the_setting_and_the_command() -> None:
    story = Story(auto_create_topic_enable=False).started()
    assert story.topics.find("TBW102") is None
    refused = refusal(story.topics.for_send, send("Orders"), NOW)
    assert refused.code == 17
    assert "autoCreateTopicEnable" in refused.remark
    assert "mqadmin updateTopic" in refused.remark
    assert "-t Orders" in refused.remark
    assert story.topics.find("Orders") is None
    assert story.saved == []


def test_auto_creation_can_be_switched_while_running() -> None:
    story = Story(auto_create_topic_enable=False).started()
    story.settings.auto_create_topic_enable = True
    story.topics.add_system_topics(NOW)
    assert story.topics.for_send(send("Orders"), NOW).topic_name == "Orders"
    story.settings.auto_create_topic_enable = False
    story.topics.add_system_topics(NOW)
    assert refusal(story.topics.for_send, send("Other"), NOW).code == 17


def test_a_template_without_inherit_permission_makes_nothing() -> None:
    story = Story().started()
    story.topics.update(TopicConfig("Plain", 4, 4, 6), NOW)
    assert "inherit" in refusal(story.topics.for_send, send("New", template="Plain"), NOW).remark
    assert "does not exist" in refusal(story.topics.for_send, send("New", template="Nope"), NOW).remark


@pytest.mark.parametrize("topic", ["../../x", "a/b", "", " ", "ä", "a b", "x" * 128, "a\x00b", "."])
def test_invalid_name_creates_no_topic(topic: str) -> None:
    story = Story().started()
    assert refusal(story.topics.create_in_send, topic, "TBW102", 4, NOW).code == 29
    assert refusal(story.topics.update, TopicConfig(topic, 4, 4, 6), NOW).code == 29
    assert refusal(story.topics.ensure, topic, 1, 6, NOW).code == 29
    assert topic not in story.topics.all()
    assert story.saved == []


@pytest.mark.parametrize("topic", ["SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC", "SELF_TEST_TOPIC", "OFFSET_MOVED_EVENT"])
def test_clients_may_not_send_to_the_brokers_own_topics(topic: str) -> None:
    assert refusal(Story().started().topics.for_send, send(topic), NOW).code == 16


def test_a_retry_topic_is_made_for_a_known_group_only() -> None:
    story = Story(group_exists=lambda group: group == "Known", auto_create_topic_enable=False).started()
    assert story.topics.for_send(send("%RETRY%Known"), NOW) == TopicConfig("%RETRY%Known", 1, 1, 6)
    assert refusal(story.topics.for_send, send("%RETRY%Unknown"), NOW).code == 26
    assert story.topics.find("%RETRY%Unknown") is None


def test_every_change_has_a_version_of_its_own() -> None:
    story = Story().started()
    for number in range(3):
        story.topics.update(TopicConfig(f"T{number}", 4, 4, 6), NOW)  # all in one millisecond
    story.topics.update(TopicConfig("T0", 4, 4, 4), NOW)
    versions = [version for _, _, version in story.heard]
    assert len(set(versions)) == len(versions) == 4
    assert [version.counter for version in versions] == sorted(version.counter for version in versions)


def test_change_without_effect_keeps_the_version() -> None:
    story = Story().started()
    story.topics.update(TopicConfig("Orders", 4, 4, 6), NOW)
    before = story.topics.data_version
    story.topics.update(TopicConfig("Orders", 4, 4, 6), NOW + 5)
    assert story.topics.data_version == before
    assert len(story.heard) == 1


def test_queue_counts_may_differ_and_shrink() -> None:
    story = Story().started()
    story.topics.update(TopicConfig("Orders", 8, 8, 6), NOW)
    story.topics.update(TopicConfig("Orders", 8, 4, 6), NOW)
    config = story.topics.find("Orders")
    assert config is not None
    assert (config.read_queue_nums, config.write_queue_nums) == (8, 4)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"read_queue_nums": -1}, "readQueueNums"),
        ({"write_queue_nums": 70_000}, "writeQueueNums"),
        ({"perm": 8}, "perm"),
        ({"perm": -1}, "perm"),
        ({"topic_name": "TBW102"}, "conflict with system topic"),
        ({"topic_name": "rmq_sys_anything"}, "conflict with system topic"),
        ({"topic_name": "b"}, "conflict with system topic"),
    ],
)
def test_out_of_range_change_is_rejected_as_a_whole(changes: dict[str, Any], named: str) -> None:
    story = Story().started()
    wish = replace(TopicConfig("Orders", 4, 4, 6), **changes)
    refused = refusal(story.topics.update, wish, NOW)
    assert refused.code == 29
    assert named in refused.remark
    assert refusal(story.topics.update_all, [TopicConfig("First", 4, 4, 6), wish], NOW).code == 29
    assert story.topics.find("First") is None


def test_attributes_are_kept_by_changes_that_do_not_name_them() -> None:
    story = Story().started()
    story.topics.update(TopicConfig("Orders", 4, 4, 6), NOW, alter={"+message.type": "FIFO"})
    story.topics.update(TopicConfig("Orders", 8, 8, 6), NOW)
    config = story.topics.find("Orders")
    assert config is not None
    assert config.attributes == {"message.type": "FIFO"}


def test_deleting_tells_the_listeners_and_saves() -> None:
    story = Story().started()
    story.topics.update(TopicConfig("Orders", 4, 4, 6), NOW)
    assert story.topics.delete("Orders", NOW)
    assert not story.topics.delete("Orders", NOW)
    assert [(topic, config is None) for topic, config, _ in story.heard] == [("Orders", False), ("Orders", True)]
    assert "Orders" not in story.saved[-1]["topicConfigTable"]


def test_a_topic_made_just_before_the_broker_was_killed_is_found_by_its_messages() -> None:
    before = Story().started()
    before.topics.update(TopicConfig("Deleted", 4, 4, 6), NOW)
    before.topics.delete("Deleted", NOW + 1000)
    stored = (
        StoredTopic("Deleted", 4, NOW + 999),
        StoredTopic("New", 3, NOW + 1001),
        StoredTopic("Wide", 9, NOW + 5000),
        StoredTopic("%RETRY%G", 1, NOW + 5000),
        StoredTopic("SCHEDULE_TOPIC_XXXX", 18, NOW + 5000),
    )
    after = Story(stored=stored)
    after.topics.load(before.saved[-1])
    assert after.topics.find("New") == TopicConfig("New", 4, 4, 6)
    assert after.topics.find("Wide") == TopicConfig("Wide", 9, 9, 6)
    assert after.topics.find("%RETRY%G") == TopicConfig("%RETRY%G", 1, 1, 6)
    assert after.topics.find("Deleted") is None, "its messages are older than the file that no longer has it"
    assert after.topics.find("SCHEDULE_TOPIC_XXXX") == before.topics.find("SCHEDULE_TOPIC_XXXX")
    assert {"New", "Wide", "%RETRY%G"} < set(after.saved[-1]["topicConfigTable"])


def test_topics_are_restored_without_the_file() -> None:
    after = Story(stored=(StoredTopic("Orders", 4, NOW),))
    after.topics.load({})
    assert after.topics.find("Orders") == TopicConfig("Orders", 4, 4, 6)


def test_creation_by_a_send_does_not_wait_for_the_disk() -> None:
    jobs: list[Callable[[], None]] = []
    story = Story(submit=jobs.append).started()
    jobs.clear()
    for number in range(3):
        story.topics.for_send(send(f"T{number}"), NOW)
    assert (len(jobs), len(story.saved)) == (1, 0)
    jobs.pop()()
    assert {"T0", "T1", "T2"} < set(story.saved[-1]["topicConfigTable"]), "one write for all that waited"
    story.topics.update(TopicConfig("Operator", 4, 4, 6), NOW)
    assert "Operator" in story.saved[-1]["topicConfigTable"], "an operator is answered when it is saved"


def test_the_name_servers_order_configuration_marks_topics() -> None:
    story = Story().started()
    story.topics.update(TopicConfig("Orders", 4, 4, 6), NOW)
    story.topics.mark_ordered(["Orders", "Unknown"], NOW)
    config = story.topics.find("Orders")
    assert config is not None
    assert config.order
    assert len(story.heard) == 2


def test_attribute_changes_are_parsed() -> None:
    assert parse_attribute_changes("+message.type=FIFO,-reserve.time") == {"+message.type": "FIFO", "-reserve.time": ""}
    assert parse_attribute_changes("") == parse_attribute_changes(None) == {}


@pytest.mark.parametrize("text", ["message.type=FIFO", "+message.type", "-a=b", "+=x", "+a=", "+", "-", "+a=1,+a=2", "=", "a"])
def test_malformed_attribute_changes_are_rejected(text: str) -> None:
    with pytest.raises(Refused):
        parse_attribute_changes(text)


@pytest.mark.parametrize(
    ("current", "wish", "after"),
    [
        (None, {"+message.type": "FIFO"}, {"message.type": "FIFO"}),
        (None, {"+queue.type": "SimpleCQ", "+reserve.time": "-1"}, {"queue.type": "SimpleCQ", "reserve.time": "-1"}),
        ({"message.type": "FIFO"}, {"+message.type": "NORMAL"}, {"message.type": "NORMAL"}),
        ({"message.type": "FIFO"}, {"-message.type": ""}, {}),
        ({"queue.type": "SimpleCQ"}, {"+queue.type": "SimpleCQ"}, {"queue.type": "SimpleCQ"}),
        ({"message.type": "FIFO"}, {}, {"message.type": "FIFO"}),
    ],
)
def test_attribute_changes_are_applied(current: dict[str, str] | None, wish: dict[str, str], after: dict[str, str]) -> None:
    assert alter_attributes(current, wish) == after


@pytest.mark.parametrize(
    ("current", "wish", "named"),
    [
        (None, {"+colour": "red"}, "unsupported key: colour"),
        (None, {"+message.type": "fifo"}, "not in set"),
        (None, {"+reserve.time": "soon"}, "hours"),
        (None, {"+reserve.time": "-2"}, "hours"),
        (None, {"+reserve.time": "٣"}, "hours"),
        (None, {"-message.type": ""}, "only add"),
        (None, {"+queue.type": "BatchCQ"}, "not in set"),
        ({}, {"+cleanup.policy": "DELETE"}, "unchangeable"),
        ({"queue.type": "SimpleCQ"}, {"-queue.type": ""}, "unchangeable"),
    ],
)
def test_invalid_attribute_changes_are_rejected(current: dict[str, str] | None, wish: dict[str, str], named: str) -> None:
    with pytest.raises(Refused) as caught:
        alter_attributes(current, wish)
    assert caught.value.code == 1
    assert named in caught.value.remark


def test_sends_create_no_more_topics_than_max_topics() -> None:
    story = Story().started()
    story.settings.max_topics = len(story.topics.all()) + 1
    story.topics.create_in_send("One", "TBW102", 4, NOW)
    with pytest.raises(Refused, match="maxTopics="):
        story.topics.create_in_send("Two", "TBW102", 4, NOW)
    with pytest.raises(Refused, match="maxTopics="):
        story.topics.update(TopicConfig(topic_name="Two"), NOW)
    with pytest.raises(Refused, match="maxTopics="):
        story.topics.update_all([TopicConfig(topic_name="One"), TopicConfig(topic_name="Two")], NOW)
    story.topics.update(TopicConfig(topic_name="One", perm=4), NOW)  # a known topic may change
    story.topics.ensure("%RETRY%G", 1, 6, NOW)  # limited by the number of groups
    assert story.topics.delete("One", NOW)
    assert story.topics.delete("%RETRY%G", NOW)
    story.topics.create_in_send("Two", "TBW102", 4, NOW)


def test_topics_have_no_more_queues_than_the_limits() -> None:
    story = Story().started()
    with pytest.raises(Refused, match="expected 0 to 1024"):
        story.topics.update(TopicConfig(topic_name="T", read_queue_nums=1_025), NOW)
    story.settings.max_queues_per_topic = 2_000
    story.topics.update(TopicConfig(topic_name="T", read_queue_nums=1_025), NOW)
    story.settings.max_queues_per_topic = 10
    story.topics.update(TopicConfig(topic_name="T", read_queue_nums=1_000), NOW)  # it has more
    story.settings.max_queues = 100
    with pytest.raises(Refused, match="maxQueues="):
        story.topics.create_in_send("Other", "TBW102", 4, NOW)
    story.topics.delete("T", NOW)
    story.settings.max_queues = 5_000
    story.topics.create_in_send("Other", "TBW102", 4, NOW)
