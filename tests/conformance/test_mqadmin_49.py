"""Apache's administration tool 4.9.8: the tests of test_mqadmin.py, with clients of that release."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.conformance import servers
from tests.conformance.agent import Agent
from tests.conformance.servers import Cluster
from tests.conformance.test_mqadmin import (
    mqadmin,
    scene,
    test_a_setting_is_changed_at_run_time,
    test_bad_topics_are_refused,
    test_broker_consume_stats,
    test_broker_status,
    test_cluster_list,
    test_configurations,
    test_connections,
    test_consumer_progress,
    test_consumer_status_asks_the_consumer_itself,
    test_groups_are_made_and_deleted,
    test_housekeeping_commands,
    test_key_value_configuration,
    test_messages_are_sent_and_consumed_by_the_tool,
    test_messages_by_key,
    test_no_command_failed,
    test_offsets_are_cloned_and_skipped,
    test_order_configuration,
    test_queue_entries_and_bodies,
    test_single_messages,
    test_stats_all,
    test_topic_is_made_changed_and_deleted,
    test_topic_list,
    test_topic_route,
    test_topic_status,
    test_write_permission_of_a_broker_is_wiped_and_added,
)

__all__ = [
    "mqadmin",
    "scene",
    "test_a_setting_is_changed_at_run_time",
    "test_bad_topics_are_refused",
    "test_broker_consume_stats",
    "test_broker_status",
    "test_cluster_list",
    "test_configurations",
    "test_connections",
    "test_consumer_progress",
    "test_consumer_status_asks_the_consumer_itself",
    "test_groups_are_made_and_deleted",
    "test_housekeeping_commands",
    "test_key_value_configuration",
    "test_messages_are_sent_and_consumed_by_the_tool",
    "test_messages_by_key",
    "test_no_command_failed",
    "test_offsets_are_cloned_and_skipped",
    "test_order_configuration",
    "test_queue_entries_and_bodies",
    "test_single_messages",
    "test_stats_all",
    "test_topic_is_made_changed_and_deleted",
    "test_topic_list",
    "test_topic_route",
    "test_topic_status",
    "test_write_permission_of_a_broker_is_wiped_and_added",
]


# Unsupported request of each command.
REFUSED = {
    "updateAclConfig": "UPDATE_AND_CREATE_ACL_CONFIG",
    "deleteAclConfig": "DELETE_ACL_CONFIG",
    "clusterAclConfigVersion": "GET_BROKER_CLUSTER_ACL_INFO",
    "updateGlobalWhiteAddr": "UPDATE_GLOBAL_WHITE_ADDRS_CONFIG",
}


@pytest.fixture(scope="module")
def tool(agents: dict[str, Agent]) -> Agent:
    return agents["4.9.8"]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """4.9.7 is the last 4.9 release with servers in Maven Central. With the servers of 5.5 the tool's clusterList fails."""
    running = servers.start(
        tmp_path_factory.mktemp("cluster"), kind="apache-4.9" if servers.TARGET == "apache" else servers.TARGET
    )
    yield running
    running.dispose()


@pytest.mark.skipif(servers.TARGET == "apache", reason="Apache has what we have not")
def test_access_control_of_files_is_refused_by_name(tool: Agent, cluster: Cluster) -> None:
    where = ["-n", cluster.namesrv, "-b", cluster.broker]
    words = {"updateAclConfig": ["-a", "key", "-s", "secret12"], "deleteAclConfig": ["-a", "key"]}
    words["updateGlobalWhiteAddr"] = ["-g", "10.0.0.1"]
    printed = tool.mqadmin([name, *where, *words.get(name, [])] for name in REFUSED)
    missing = {name: text for name, text in zip(REFUSED, printed, strict=True) if f"({REFUSED[name]}) not supported" not in text}
    assert missing == {}
