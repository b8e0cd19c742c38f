"""Policies: parsing of entries and the decision about a need."""

from __future__ import annotations

import pytest

from firearrow.auth.policies import (
    ALL,
    ALLOWED,
    CLUSTER,
    DENIED,
    GET,
    GROUP,
    NO_POLICY,
    PUB,
    SUB,
    TOPIC,
    UPDATE,
    AccessControlList,
    Decision,
    Need,
    PolicyEntry,
    PolicyError,
    ResourcePattern,
)
from firearrow.wire.bodies.auth import AclInfo, PolicyEntryInfo, PolicyInfo

HERE = "10.0.0.7"


def entry(resource: str, actions: str = "Pub", decision: str = "Allow", *sources: str) -> PolicyEntryInfo:
    return PolicyEntryInfo(resource, actions.split(","), list(sources) or None, decision)


def acl(*custom: PolicyEntryInfo, default: list[PolicyEntryInfo] | None = None) -> AccessControlList:
    policies = [PolicyInfo(None, list(custom))] if custom else []
    policies += [PolicyInfo("Default", default)] if default else []
    return AccessControlList.from_info("User:alice", AclInfo("User:alice", policies))


@pytest.mark.parametrize(
    ("resource", "need", "fits"),
    [
        ("*", Need(CLUSTER, "c", GET), True),
        ("Topic:*", Need(TOPIC, "a", PUB), True),
        ("topic:a", Need(TOPIC, "a", PUB), True),
        ("Topic:a", Need(TOPIC, "A", PUB), False),
        ("Topic:a", Need(GROUP, "a", PUB), False),
        ("Topic:ab*", Need(TOPIC, "abc", PUB), True),
        ("Topic:ab*", Need(TOPIC, "ab", PUB), True),
        ("Topic:a*b*", Need(TOPIC, "axx", PUB), True),
        ("Topic:a*b", Need(TOPIC, "axb", PUB), False),
        ("Topic:ab*", Need(TOPIC, "ac", PUB), False),
        ("Namespace:*", Need(TOPIC, "ns%a", PUB), False),
    ],
)
def test_resources(resource: str, need: Need, fits: bool) -> None:
    assert (acl(entry(resource, "All")).decide(need, HERE) == ALLOWED) is fits


@pytest.mark.parametrize(
    ("entries", "need", "decision"),
    [
        ([], Need(TOPIC, "a", PUB), NO_POLICY),
        ([entry("Topic:a", "Sub")], Need(TOPIC, "a", PUB), NO_POLICY),
        ([entry("Topic:a", "Sub")], Need(TOPIC, "a", PUB | SUB), ALLOWED),
        ([entry("Topic:a", "All")], Need(TOPIC, "a", UPDATE), ALLOWED),
        ([entry("Topic:a*", "Pub", "Deny"), entry("Topic:a1")], Need(TOPIC, "a1", PUB), ALLOWED),
        ([entry("Topic:a*"), entry("Topic:a1", "Pub", "Deny")], Need(TOPIC, "a1", PUB), DENIED),
        ([entry("Topic:a*", "Pub", "Deny"), entry("Topic:ab*")], Need(TOPIC, "abc", PUB), ALLOWED),
        ([entry("Topic:*"), entry("Topic:a*", "Pub", "Deny")], Need(TOPIC, "abc", PUB), DENIED),
        ([entry("*", "Pub", "Deny"), entry("Topic:*")], Need(TOPIC, "a", PUB), ALLOWED),
        ([entry("Topic:a", "Sub", "Deny"), entry("Topic:a*", "Pub")], Need(TOPIC, "a", PUB), ALLOWED),
    ],
)
def test_most_specific_entry_decides(entries: list[PolicyEntryInfo], need: Need, decision: Decision) -> None:
    assert (acl(*entries) if entries else AccessControlList("User:alice")).decide(need, HERE) == decision


def test_deny_wins_among_equal_patterns() -> None:
    allow, deny = PolicyEntry.parse(entry("Topic:a", "Pub")), PolicyEntry.parse(entry("Topic:a", "Pub,Sub", "Deny"))
    for entries in ((allow, deny), (deny, allow)):
        assert AccessControlList("User:alice", entries).decide(Need(TOPIC, "a", PUB), HERE) == DENIED


def test_default_entries_count_only_without_matching_custom_entry() -> None:
    rules = acl(entry("Topic:*", "Pub", "Deny"), default=[entry("Topic:a", "Pub,Sub")])
    assert rules.decide(Need(TOPIC, "a", PUB), HERE) == DENIED
    assert rules.decide(Need(TOPIC, "a", SUB), HERE) == ALLOWED


@pytest.mark.parametrize(
    ("sources", "address", "fits"),
    [
        (["10.0.0.7"], "10.0.0.7", True),
        (["10.0.0.7"], "10.0.0.70", False),
        (["10.0.0.0/8", "192.168.1.1"], "10.9.9.9", True),
        (["10.0.0.7/8"], "10.9.9.9", True),
        (["10.0.0.0/8"], "11.0.0.1", False),
        (["2001:db8::/32"], "2001:db8::1", True),
        (["2001:db8::/32"], "10.0.0.1", False),
        (["10.0.0.0/8"], "not an address", False),
    ],
)
def test_source_addresses_narrow_an_entry(sources: list[str], address: str, fits: bool) -> None:
    found = acl(entry("Topic:a", "Pub", "Allow", *sources)).decide(Need(TOPIC, "a", PUB), address)
    assert (found == ALLOWED) is fits


@pytest.mark.parametrize(
    "topic",
    ["rmq_sys_wheel_timer", "SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC", "%DLQ%g", "TRANS_CHECK_MAX_TIME_TOPIC"],
)
def test_internal_topics_need_a_literal_entry(topic: str) -> None:
    need = Need(TOPIC, topic, SUB)
    for resource in ("*", "Topic:*", f"Topic:{topic[:4]}*"):
        assert acl(entry(resource, "All")).decide(need, HERE) == NO_POLICY
    assert acl(entry(f"Topic:{topic}", "Sub")).decide(need, HERE) == ALLOWED


def test_trace_topic_is_an_ordinary_topic() -> None:
    assert acl(entry("Topic:*")).decide(Need(TOPIC, "RMQ_SYS_TRACE_TOPIC", PUB), HERE) == ALLOWED


def test_log_of_users_is_closed_to_all_policies() -> None:
    assert acl(entry("Topic:rmq_sys_group_tables", "All")).decide(Need(TOPIC, "rmq_sys_group_tables", ALL), HERE) == NO_POLICY


@pytest.mark.parametrize(
    ("info", "message"),
    [
        (PolicyEntryInfo(None, ["Pub"], None, "Allow"), "The resource is null."),
        (PolicyEntryInfo("Topic", ["Pub"], None, "Allow"), "The resource is null."),
        (PolicyEntryInfo("Queue:x", ["Pub"], None, "Allow"), "The resource is null."),
        (PolicyEntryInfo("Topic:x", None, None, "Allow"), "The actions is empty."),
        (PolicyEntryInfo("Topic:x", ["Fly"], None, "Allow"), "The actions is empty."),
        (PolicyEntryInfo("Topic:x", ["Any", "Pub"], None, "Allow"), "The actions can not be Any."),
        (PolicyEntryInfo("Topic:x", ["Pub"], [""], "Allow"), "The source ip is empty."),
        (PolicyEntryInfo("Topic:x", ["Pub"], ["10.0.0"], "Allow"), "The source ip is invalid."),
        (PolicyEntryInfo("Topic:x", ["Pub"], ["10.0.0.0/33"], "Allow"), "The source ip is invalid."),
        (PolicyEntryInfo("Topic:x", ["Pub"], None, "maybe"), "The decision is null or illegal."),
        (PolicyEntryInfo("Topic:x", ["Pub"], None, None), "The decision is null or illegal."),
    ],
)
def test_bad_entries(info: PolicyEntryInfo, message: str) -> None:
    with pytest.raises(PolicyError, match=message):
        acl(info)


def test_empty_lists_are_rejected() -> None:
    with pytest.raises(PolicyError, match="The policies is empty"):
        AccessControlList.from_info("User:alice", AclInfo("User:alice", []))
    with pytest.raises(PolicyError, match="The policy entries is empty"):
        AccessControlList.from_info("User:alice", AclInfo("User:alice", [PolicyInfo("Custom", [])]))


def test_merging_replaces_entries_with_the_same_resource() -> None:
    merged = acl(entry("Topic:a"), entry("Topic:b")).updated(acl(entry("Topic:a", "Sub"), entry("Group:g", "Sub")))
    assert [(one.resource.text, one.action_names) for one in merged.custom] == [
        ("Topic:a", ("Sub",)),
        ("Topic:b", ("Pub",)),
        ("Group:g", ("Sub",)),
    ]
    assert [one.resource.text for one in merged.without("Custom", ResourcePattern.parse("Topic:a")).custom] == [
        "Topic:b",
        "Group:g",
    ]


def test_info_has_the_form_of_apache() -> None:
    assert acl(entry("Topic:a*", "pub,SUB", "allow", "10.0.0.0/8"), default=[entry("*", "All", "Deny")]).info().to_json() == {
        "policies": [
            {
                "entries": [
                    {"actions": ["Pub", "Sub"], "decision": "Allow", "resource": "Topic:a*", "sourceIps": ["10.0.0.0/8"]}
                ],
                "policyType": "Custom",
            },
            {"entries": [{"actions": ["All"], "decision": "Deny", "resource": "*"}], "policyType": "Default"},
        ],
        "subject": "User:alice",
    }
