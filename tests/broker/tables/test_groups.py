"""The group table: built-in groups, creation on first sight, forbidden topics."""

from __future__ import annotations

from typing import Any

import pytest

from firearrow.broker.requests.responses import Refused
from firearrow.broker.settings import BrokerSettings
from firearrow.broker.tables.groups import GroupTable
from firearrow.wire import fastjson
from firearrow.wire.bodies.topic import SubscriptionGroupConfig

NOW = 1_700_000_000_000


def table(saved: list[dict[str, Any]] | None = None, **settings: Any) -> GroupTable:
    kept = saved if saved is not None else []
    return GroupTable(BrokerSettings(**settings), lambda table: kept.append(fastjson.loads(fastjson.dumps_pretty(table))))


def test_the_built_in_groups_are_made_once() -> None:
    saved: list[dict[str, Any]] = []
    groups = table(saved)
    groups.add_built_in_groups(NOW)
    groups.add_built_in_groups(NOW)
    assert set(groups.all()) == {
        "TOOLS_CONSUMER",
        "FILTERSRV_CONSUMER",
        "SELF_TEST_C_GROUP",
        "CID_ONS-HTTP-PROXY",
        "CID_ONSAPI_PULL",
        "CID_ONSAPI_PERMISSION",
        "CID_ONSAPI_OWNER",
        "CID_RMQ_SYS_TRANS",
    }
    assert len(saved) == 1


def test_an_unknown_group_is_made_with_defaults_when_it_is_first_seen() -> None:
    saved: list[dict[str, Any]] = []
    groups = table(saved)
    assert groups.find("G") is None
    assert groups.find_or_create("G", NOW) == SubscriptionGroupConfig("G")
    assert groups.find_or_create("G", NOW) is groups.find("G")
    assert saved[-1]["subscriptionGroupTable"]["G"]["retryMaxTimes"] == 16
    assert len(saved) == 1


def test_without_auto_creation_only_system_groups_are_made() -> None:
    groups = table(auto_create_subscription_group=False)
    assert groups.find_or_create("G", NOW) is None
    assert groups.find_or_create("CID_RMQ_SYS_X", NOW) is not None
    with pytest.raises(Refused) as caught:
        groups.must_find("G", NOW)
    assert caught.value.code == 26
    assert "autoCreateSubscriptionGroup" in caught.value.remark
    assert "mqadmin updateSubGroup" in caught.value.remark


@pytest.mark.parametrize("group", ["../../x", "", "a b", "ä", "g" * 256])
def test_invalid_name_creates_no_group(group: str) -> None:
    saved: list[dict[str, Any]] = []
    groups = table(saved)
    assert groups.find_or_create(group, NOW) is None
    with pytest.raises(Refused) as caught:
        groups.update(SubscriptionGroupConfig(group), NOW)
    assert caught.value.code == 29
    assert saved == []


def test_several_groups_are_changed_together_or_not_at_all() -> None:
    groups = table()
    with pytest.raises(Refused):
        groups.update_all([SubscriptionGroupConfig("Good"), SubscriptionGroupConfig("Bad", retry_queue_nums=-1)], NOW)
    assert groups.find("Good") is None
    groups.update_all([SubscriptionGroupConfig("Good"), SubscriptionGroupConfig("Better", retry_queue_nums=2)], NOW)
    assert set(groups.all()) == {"Good", "Better"}


def test_every_change_has_its_own_version_and_no_change_has_none() -> None:
    groups = table()
    groups.update(SubscriptionGroupConfig("G"), NOW)
    first = groups.data_version
    groups.update(SubscriptionGroupConfig("G"), NOW)
    assert groups.data_version == first
    groups.update(SubscriptionGroupConfig("G", retry_max_times=3), NOW)
    assert groups.data_version.counter == first.counter + 1


def test_a_topic_forbidden_to_a_group_is_so_after_a_restart() -> None:
    saved: list[dict[str, Any]] = []
    groups = table(saved)
    groups.find_or_create("G", NOW)
    groups.set_readable("G", "T", False, NOW)
    assert groups.forbidden("G", "T")
    assert not groups.forbidden("G", "Other")
    again = table()
    again.load(saved[-1])
    assert again.forbidden("G", "T")
    again.set_readable("G", "T", True, NOW)
    assert not again.forbidden("G", "T")
    assert again.to_json()["forbiddenTable"] == {}


def test_a_deleted_group_is_forgotten_with_what_was_forbidden_to_it() -> None:
    groups = table()
    groups.find_or_create("G", NOW)
    groups.set_readable("G", "T", False, NOW)
    assert groups.delete("G", NOW)
    assert not groups.delete("G", NOW)
    assert not groups.forbidden("G", "T")


def test_files_of_older_versions_lack_fields_and_are_read() -> None:
    groups = table()
    groups.load(
        {"dataVersion": {"counter": 3, "timestamp": 5}, "subscriptionGroupTable": {"G": {"groupName": "G", "retryMaxTimes": 4}}}
    )
    assert groups.find("G") == SubscriptionGroupConfig("G", retry_max_times=4)
    assert groups.data_version.counter == 3


def test_no_more_groups_than_max_groups_are_created() -> None:
    groups = table(max_groups=1)
    assert groups.find_or_create("One", NOW) is not None
    assert groups.find_or_create("Two", NOW) is None
    with pytest.raises(Refused, match="maxGroups is 1"):
        groups.must_find("Two", NOW)
    with pytest.raises(Refused, match="maxGroups is 1"):
        groups.update(SubscriptionGroupConfig(group_name="Two"), NOW)
    groups.update(SubscriptionGroupConfig(group_name="One", consume_enable=False), NOW)
    groups.delete("One", NOW)
    assert groups.find_or_create("Two", NOW) is not None
