"""The route table as a story: who registers, who falls silent, and what is left to be found."""

from __future__ import annotations

from typing import Any

import pytest

from firearrow.namesrv.route_table import BrokerRegistration, RouteTable
from firearrow.wire.bodies.route import QueueData, TopicRouteData
from firearrow.wire.bodies.topic import DataVersion, TopicConfig
from firearrow.wire.headers.namesrv import NotifyMinBrokerIdChangeRequestHeader, RegisterBrokerResponseHeader

FOREVER_MS = 1 << 60
V1, V2, V3 = (DataVersion(counter=n, timestamp=1000 + n) for n in (1, 2, 3))


def topics(*names: str, perm: int = 6, queues: int = 4) -> dict[str, TopicConfig]:
    return {name: TopicConfig(name, queues, queues, perm) for name in names}


def broker(
    name: str = "a",
    broker_id: int = 0,
    address: str | None = None,
    *,
    cluster: str = "C",
    version: DataVersion = V1,
    table: dict[str, TopicConfig] | None = None,
    **more: Any,
) -> BrokerRegistration:
    address = address or f"10.0.0.{ord(name[-1]) - 96}:{10911 + broker_id * 10}"
    table = topics("T", "U") if table is None else table
    return BrokerRegistration(cluster, name, broker_id, address, address.replace("1091", "1092"), version, table, **more)


def perms(route: TopicRouteData | None) -> dict[str, int]:
    assert route is not None
    return {queue.broker_name: queue.perm for queue in route.queue_datas}


def addresses(table: RouteTable, topic: str) -> dict[str, dict[int, str]]:
    route = table.route(topic)
    return {} if route is None else {data.broker_name: data.broker_addrs for data in route.broker_datas}


def is_empty(table: RouteTable) -> bool:
    """Return whether nothing is left: no topic, no broker, no cluster, and no registration that could expire."""
    info = table.cluster_info()
    return not (table.topics().topic_list or info.cluster_addr_table or info.broker_addr_table or table.expire(FOREVER_MS))


def test_topic_is_routed_to_every_broker_that_registered_it() -> None:
    table = RouteTable()
    assert table.register(broker("a", table=topics("T", "OnlyA")), "chan-a", 0) == RegisterBrokerResponseHeader()
    assert table.register(broker("b", table=topics("T", "OnlyB", queues=8)), "chan-b", 0) == RegisterBrokerResponseHeader()

    assert addresses(table, "T") == {"a": {0: "10.0.0.1:10911"}, "b": {0: "10.0.0.2:10911"}}
    assert addresses(table, "OnlyB") == {"b": {0: "10.0.0.2:10911"}}
    route = table.route("T")
    assert route is not None
    assert [(q.broker_name, q.read_queue_nums) for q in route.queue_datas] == [("a", 4), ("b", 8)]
    assert table.route("Nowhere") is None
    assert table.topics().topic_list == ["T", "OnlyA", "OnlyB"]
    assert table.cluster_info().cluster_addr_table == {"C": ["a", "b"]}


def test_slave_receives_its_masters_address_and_does_not_change_topics() -> None:
    table = RouteTable()
    table.register(broker("a", 0), "m", 0)
    answer = table.register(broker("a", 1, version=V3, table=topics("T", "Stray", queues=99)), "s", 0)

    assert answer == RegisterBrokerResponseHeader(ha_server_addr="10.0.0.1:10921", master_addr="10.0.0.1:10911")
    assert addresses(table, "T") == {"a": {0: "10.0.0.1:10911", 1: "10.0.0.1:10921"}}
    assert table.route("Stray") is None


def test_routes_are_copies() -> None:
    table = RouteTable()
    table.register(broker(), "c", 0)
    route = table.route("T")
    assert route is not None
    route.broker_datas[0].broker_addrs.clear()
    route.queue_datas[0].perm = 0
    assert addresses(table, "T") == {"a": {0: "10.0.0.1:10911"}}
    assert perms(table.route("T")) == {"a": 6}


# Versions.


def test_wiped_permission_survives_repeated_registrations() -> None:
    table = RouteTable()
    table.register(broker(version=V1), "c", 0)
    assert table.wipe_write_permission("a") == 2
    assert perms(table.route("T")) == {"a": 4}

    table.register(broker(version=V1), "c", 30_000)
    assert perms(table.route("T")) == {"a": 4}
    table.register(broker(version=V2), "c", 60_000)  # something changed at the broker
    assert perms(table.route("T")) == {"a": 6}

    assert table.wipe_write_permission("a") == 2
    assert table.add_write_permission("a") == 2
    assert perms(table.route("T")) == {"a": 6}
    assert table.wipe_write_permission("unknown") == 0


def test_single_topic_registration_adds_the_topic() -> None:
    table = RouteTable()
    table.register(broker(version=V1), "c", 0)
    table.register(broker(version=V2, table=topics("New")), "c", 1)
    assert table.topics().topic_list == ["T", "U", "New"]
    assert table.data_version("C", "10.0.0.1:10911") == V2


def test_single_topic_registration_applies_even_with_a_known_version() -> None:
    table = RouteTable()
    table.register(broker(version=V1), "c", 0)
    table.register(broker(version=V2, table=topics("T", queues=8)), "c", 1)
    table.register(broker(version=V2, table=topics("U", queues=8)), "c", 2)  # two changes under one version
    for name in ("T", "U"):
        route = table.route(name)
        assert route is not None
        assert route.queue_datas[0].read_queue_nums == 8


def test_single_topic_of_an_unknown_broker_is_rejected() -> None:
    table = RouteTable()
    assert table.register(broker(table=topics("T")), "c", 0) is None
    assert table.route("T") is None
    assert table.cluster_info().broker_addr_table == {}
    assert table.cluster_info().cluster_addr_table == {}
    assert table.channel_closed("c") == []


def test_missing_topic_is_restored_by_the_next_registration() -> None:
    table = RouteTable()
    table.register(broker(version=V1), "c", 0)
    table.delete_topic("T")
    assert table.route("T") is None
    table.register(broker(version=V1), "c", 1)
    assert perms(table.route("T")) == {"a": 6}


def test_topics_missing_from_a_full_registration_stay_unless_configured() -> None:
    table = RouteTable()
    table.register(broker(version=V1, table=topics("T", "U", "V")), "c", 0)
    table.register(broker(version=V2, table=topics("T", "U")), "c", 1)
    assert table.route("V") is not None

    table.delete_topic_with_broker_registration = True
    table.register(broker(version=V3, table=topics("T", "W")), "c", 2)
    assert table.topics().topic_list == ["T", "W"]
    table.register(broker(version=V1, table=topics("X")), "c", 3)  # one topic at a time names no others
    assert table.topics().topic_list == ["T", "W", "X"]


# Coming and going.


def test_unregistering_removes_everything() -> None:
    table = RouteTable()
    table.register(broker("a"), "chan-a", 0)
    table.register(broker("b", table=topics("T", "OnlyB")), "chan-b", 0)
    table.unregister("C", "b", "10.0.0.2:10911")
    assert addresses(table, "T") == {"a": {0: "10.0.0.1:10911"}}
    assert table.route("OnlyB") is None
    table.unregister("C", "b", "10.0.0.2:10911")  # twice is once
    table.unregister("C", "a", "10.9.9.9:1")  # another broker's address
    assert addresses(table, "T") == {"a": {0: "10.0.0.1:10911"}}
    table.unregister("C", "a", "10.0.0.1:10911")
    assert is_empty(table)


def test_closed_connection_removes_its_brokers() -> None:
    table = RouteTable()
    table.register(broker("a", 0), "shared", 0)
    table.register(broker("b", 0), "shared", 0)
    table.register(broker("a", 1), "own", 0)
    assert sorted(table.channel_closed("shared")) == ["10.0.0.1:10911", "10.0.0.2:10911"]
    assert addresses(table, "T") == {"a": {1: "10.0.0.1:10921"}}
    assert table.channel_closed("shared") == []


def test_end_of_the_old_connection_keeps_a_broker_that_registered_on_another() -> None:
    table = RouteTable()
    table.register(broker(), "old", 0)
    table.register(broker(), "new", 1)
    assert table.channel_closed("old") == []
    assert addresses(table, "T") == {"a": {0: "10.0.0.1:10911"}}


def test_late_requests_of_an_abandoned_connection_remove_nothing() -> None:
    """The broker has come back on another connection before the old one delivers what was on its way, and then ends."""
    table = RouteTable()
    table.register(broker(version=V1), "before", 0)
    table.register(broker(version=V2), "after", 30_000)
    assert table.register(broker(version=V1), "before", 31_000) == RegisterBrokerResponseHeader()
    table.unregister("C", "a", "10.0.0.1:10911", "before")
    assert table.channel_closed("before") == []
    assert addresses(table, "T") == {"a": {0: "10.0.0.1:10911"}}
    table.unregister("C", "a", "10.0.0.1:10911", "after")
    assert addresses(table, "T") == {}


def test_silent_broker_expires_after_its_own_timeout() -> None:
    table = RouteTable()
    table.register(broker("a"), "chan-a", 0)
    table.register(broker("b", timeout_ms=10_000), "chan-b", 0)
    assert table.expire(10_000) == []
    assert table.expire(10_001) == [("10.0.0.2:10911", "chan-b")]
    table.heartbeat("C", "10.0.0.1:10911", 50_000)
    table.heartbeat("C", "10.0.0.2:10911", 50_000)  # gone: a heartbeat does not bring it back
    assert table.expire(170_000) == []
    assert table.expire(170_001) == [("10.0.0.1:10911", "chan-a")]
    assert is_empty(table)


def test_slave_that_becomes_master_changes_its_id() -> None:
    table = RouteTable()
    table.register(broker("a", 0), "m", 0)
    table.register(broker("a", 1), "s", 0)
    table.channel_closed("m")
    table.register(broker("a", 0, "10.0.0.1:10921", version=V2), "s", 1)
    assert addresses(table, "T") == {"a": {0: "10.0.0.1:10921"}}
    assert table.expire(FOREVER_MS) == [("10.0.0.1:10921", "s")]


def test_master_at_a_new_address_replaces_the_old_entry() -> None:
    table = RouteTable()
    table.register(broker("a", 0, "10.0.0.1:10911"), "old", 0)
    table.register(broker("a", 0, "10.0.0.7:10911", version=V2), "new", 1)
    assert addresses(table, "T") == {"a": {0: "10.0.0.7:10911"}}
    assert table.channel_closed("old") == []  # the old address is no longer counted
    assert addresses(table, "T") == {"a": {0: "10.0.0.7:10911"}}


def test_deposed_master_does_not_replace_the_new_one() -> None:
    table = RouteTable()
    table.register(broker("a", 0, "10.0.0.7:10911", version=DataVersion(1, 2, 1)), "new", 0)
    assert (
        table.register(broker("a", 0, "10.0.0.1:10911", version=DataVersion(9, 1, 9)), "old", 1) == RegisterBrokerResponseHeader()
    )
    assert addresses(table, "T") == {"a": {0: "10.0.0.7:10911"}}


def test_broker_name_registered_in_another_cluster_moves_there() -> None:
    table = RouteTable()
    table.register(broker("a", cluster="C"), "old", 0)
    table.register(broker("a", cluster="D"), "new", 1)
    assert table.cluster_info().cluster_addr_table == {"D": ["a"]}
    assert table.channel_closed("old") == []
    assert table.channel_closed("new") == ["10.0.0.1:10911"]
    assert is_empty(table)


# Lists.


def test_lists_by_cluster_and_by_flag() -> None:
    table = RouteTable()
    table.register(broker("a", cluster="C", table=topics("T", "C1")), "1", 0)
    flags = topics("Plain", "Unit", "Sub", "Both")
    flags["Unit"].topic_sys_flag, flags["Sub"].topic_sys_flag, flags["Both"].topic_sys_flag = 1, 2, 3
    table.register(broker("b", cluster="D", table=flags), "2", 0)

    assert table.topics_of_cluster("C").topic_list == ["T", "C1"]
    assert table.topics_of_cluster("nowhere").topic_list == []
    assert table.topics_by_flag(lambda flag: bool(flag & 1)).topic_list == ["Unit", "Both"]
    system = table.system_topics()
    assert (system.topic_list, system.broker_addr) == (["C", "a", "D", "b"], "10.0.0.1:10911")
    assert table.member_addresses("D", "b") == {0: "10.0.0.2:10911"}
    assert table.member_addresses("C", "b") == {}


def test_topic_is_deleted_everywhere_or_in_one_cluster() -> None:
    table = RouteTable()
    table.register(broker("a", cluster="C"), "1", 0)
    table.register(broker("b", cluster="D"), "2", 0)
    table.delete_topic("T", "C")
    assert list(addresses(table, "T")) == ["b"]
    table.delete_topic("T", "D")
    assert table.route("T") is None
    table.delete_topic("U")
    table.delete_topic("never heard of")
    assert table.topics().topic_list == []


def test_operator_can_register_a_topic_at_known_brokers() -> None:
    table = RouteTable()
    table.register(broker("a"), "1", 0)
    table.register_topic("Hand", [QueueData("a", 1, 1), QueueData("unknown", 1, 1)])
    assert list(addresses(table, "Hand")) == ["a"]
    table.register_topic("Nobody", [QueueData("unknown", 1, 1)])
    assert table.route("Nobody") is None


def test_filter_servers_are_part_of_the_route_of_their_broker() -> None:
    table = RouteTable()
    table.register(broker("a", filter_servers=["f1:1"]), "1", 0)
    route = table.route("T")
    assert route is not None
    assert route.filter_server_table == {"10.0.0.1:10911": ["f1:1"]}
    table.register(broker("a"), "1", 1)
    route = table.route("T")
    assert route is not None
    assert route.filter_server_table == {}


# Acting masters.


def test_without_master_the_lowest_slave_acts_read_only_if_allowed() -> None:
    table = RouteTable()
    table.support_acting_master = True
    table.register(broker("a", 0, enable_acting_master=True), "m", 0)
    table.register(broker("a", 1, enable_acting_master=True), "s1", 0)
    table.register(broker("a", 2, enable_acting_master=True), "s2", 0)
    table.channel_closed("m")

    assert perms(table.route("T")) == {"a": 4}
    assert addresses(table, "T") == {"a": {0: "10.0.0.1:10921", 2: "10.0.0.1:10931"}}
    table.register(broker("a", 1, enable_acting_master=True, version=V2), "s1", 1)  # still not writable
    assert perms(table.route("T")) == {"a": 4}
    table.register(broker("a", 0, enable_acting_master=True, version=V3), "m", 2)
    assert perms(table.route("T")) == {"a": 6}
    assert addresses(table, "T")["a"][0] == "10.0.0.1:10911"


def test_without_acting_master_the_route_lists_the_live_brokers() -> None:
    table = RouteTable()
    table.register(broker("a", 0), "m", 0)
    table.register(broker("a", 1), "s1", 0)
    table.channel_closed("m")
    assert addresses(table, "T") == {"a": {1: "10.0.0.1:10921"}}
    assert perms(table.route("T")) == {"a": 6}


def test_members_hear_when_their_lowest_id_changes() -> None:
    table = RouteTable()
    table.notify_min_broker_id_changed = True
    table.register(broker("a", 1), "s1", 0)
    table.register(broker("a", 2), "s2", 0)
    assert table.notices == []
    table.register(broker("a", 0), "m", 0)
    joined = NotifyMinBrokerIdChangeRequestHeader(
        min_broker_id=0, broker_name="a", min_broker_addr="10.0.0.1:10911", ha_broker_addr="10.0.0.1:10921"
    )
    assert table.notices == [("s1", joined), ("s2", joined)]
    table.notices.clear()
    table.channel_closed("m")
    assert [(channel, notice.min_broker_id, notice.offline_broker_addr) for channel, notice in table.notices] == [
        ("s1", 1, "10.0.0.1:10911"),
        ("s2", 1, "10.0.0.1:10911"),
    ]
    table.notices.clear()
    table.channel_closed("s2")  # the lowest stays
    assert table.notices == []


def test_registration_with_a_huge_state_version_does_not_displace_a_live_broker() -> None:
    table = RouteTable()
    table.register(broker("a", 0, "10.0.0.1:10911", version=DataVersion(1, 3, 1)), "real", 0)
    table.register(broker("a", 0, "10.6.6.6:10911", version=DataVersion(1, 1 << 40, 1)), "forged", 1)
    assert addresses(table, "T") == {"a": {0: "10.0.0.1:10911"}}
    table.register(broker("a", 0, "10.0.0.2:10911", version=DataVersion(1, 4, 1)), "elected", 2)  # the next leader
    assert addresses(table, "T") == {"a": {0: "10.0.0.2:10911"}}


@pytest.mark.parametrize("broker_id", [0, 5])
def test_huge_state_version_from_another_cluster_does_not_displace_a_live_broker(broker_id: int) -> None:
    table = RouteTable()
    table.register(broker("a", 0, "10.0.0.1:10911", version=DataVersion(1, 3, 1)), "real", 0)
    forged = broker("a", broker_id, "10.6.6.6:10911", cluster="D", version=DataVersion(1, 1 << 40, 1))
    assert table.register(forged, "forged", 1) == RegisterBrokerResponseHeader()
    assert addresses(table, "T") == {"a": {0: "10.0.0.1:10911"}}
    assert table.cluster_info().cluster_addr_table == {"C": ["a"]}


def test_broker_displaces_a_registration_with_a_huge_state_version() -> None:
    """A forged registration that came first, while the broker was down, must not keep it out."""
    table = RouteTable()
    table.register(broker("a", 0, "10.6.6.6:10911", version=DataVersion(1, 1 << 40, 1)), "forged", 0)
    table.register(broker("a", 0, "10.0.0.1:10911", version=DataVersion(1, 3, 1)), "real", 1)
    assert addresses(table, "T") == {"a": {0: "10.0.0.1:10911"}}
