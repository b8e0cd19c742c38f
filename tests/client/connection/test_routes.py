from __future__ import annotations

import pytest

from firearrow.client.connection.routes import QueueCounts, TopicRoute, decode_route, template_route
from firearrow.client.message import MessageQueue
from firearrow.wire.errors import ProtocolError

BODY = (
    b'{"brokerDatas":[{"brokerAddrs":{1:"h:3",0:"h:1"},"brokerName":"b","cluster":"C"},'
    b'{"brokerAddrs":{"1":"h:2"},"brokerName":"a","cluster":"C"}],"filterServerTable":{},'
    b'"queueDatas":[{"brokerName":"b","perm":6,"readQueueNums":3,"topicSysFlag":0,"writeQueueNums":2},'
    b'{"brokerName":"a","perm":6,"readQueueNums":1,"topicSysFlag":0,"writeQueueNums":1}]}'
)


def test_queues_to_write_need_a_master_and_queues_to_read_do_not() -> None:
    route = decode_route("T", BODY)
    assert route.brokers == {"b": {0: "h:1", 1: "h:3"}, "a": {1: "h:2"}}
    assert route.write_queues() == [MessageQueue("T", "b", 0), MessageQueue("T", "b", 1)]
    assert route.read_queues() == [MessageQueue("T", "a", 0), *(MessageQueue("T", "b", n) for n in range(3))]
    assert route == decode_route("T", BODY)


def test_permissions_count() -> None:
    for perm, reads, writes in ((6, 2, 1), (4, 2, 0), (2, 0, 1), (0, 0, 0)):
        route = TopicRoute("T", {"a": {0: "h:1"}}, (QueueCounts("a", 2, 1, perm),))
        assert (len(route.read_queues()), len(route.write_queues())) == (reads, writes)


def test_an_ordered_topic_has_the_queues_of_its_configuration() -> None:
    route = TopicRoute("T", {"a": {0: "h:1"}}, (QueueCounts("a", 8, 8, 6),), "b:2;a:1")
    assert route.write_queues() == [MessageQueue("T", "b", 0), MessageQueue("T", "b", 1), MessageQueue("T", "a", 0)]
    with pytest.raises(ProtocolError, match="expected broker:count"):
        TopicRoute("T", {}, (), "b;a").write_queues()


def test_a_topic_that_does_not_exist_gets_no_more_queues_than_the_broker_will_make() -> None:
    template = TopicRoute("TBW102", {"a": {0: "h:1"}}, (QueueCounts("a", 8, 8, 7),))
    assert len(template_route("new", template).write_queues()) == 4
    few = TopicRoute("TBW102", {"a": {0: "h:1"}}, (QueueCounts("a", 2, 2, 7),))
    assert [queue.topic for queue in template_route("new", few).write_queues()] == ["new", "new"]


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b'{"brokerDatas":7}'])
def test_nonsense_is_a_protocol_error(body: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode_route("T", body)
