"""Which function does what a subcommand of `firearrow mqadmin` says. They print in the columns of Apache's tool."""

from __future__ import annotations

import argparse
from collections.abc import Awaitable, Callable
from typing import Final

from firearrow.admin.aio import Admin
from firearrow.cli.mqadmin import groups as groups
from firearrow.cli.mqadmin import messages as messages
from firearrow.cli.mqadmin import servers as servers
from firearrow.cli.mqadmin import topics as topics

Subcommand = Callable[[Admin, argparse.Namespace], Awaitable[None]]


async def carry_out(admin: Admin, options: argparse.Namespace) -> int:
    await COMMANDS[options.subcommand](admin, options)
    return 0


COMMANDS: Final[dict[str, Subcommand]] = {
    "updateTopic": topics.update_topic,
    "deleteTopic": topics.delete_topic,
    "updateTopicPerm": topics.update_topic_perm,
    "topicList": topics.topic_list,
    "topicRoute": topics.topic_route,
    "topicStatus": topics.topic_status,
    "topicClusterList": topics.topic_cluster_list,
    "updateOrderConf": topics.update_order_conf,
    "updateSubGroup": groups.update_sub_group,
    "deleteSubGroup": groups.delete_sub_group,
    "getConsumerConfig": groups.get_consumer_config,
    "consumerProgress": groups.consumer_progress,
    "consumerConnection": groups.consumer_connection,
    "producerConnection": groups.producer_connection,
    "producer": groups.producer,
    "resetOffsetByTime": groups.reset_offset_by_time,
    "skipAccumulatedMessage": groups.skip_accumulated_message,
    "cloneGroupOffset": groups.clone_group_offset,
    "queryMsgById": messages.query_msg_by_id,
    "queryMsgByUniqueKey": messages.query_msg_by_unique_key,
    "queryMsgByKey": messages.query_msg_by_key,
    "queryMsgByOffset": messages.query_msg_by_offset,
    "printMsg": messages.print_msg,
    "queryMsgTraceById": messages.query_msg_trace_by_id,
    "clusterList": servers.cluster_list,
    "brokerStatus": servers.broker_status,
    "brokerConsumeStats": servers.broker_consume_stats,
    "getBrokerConfig": servers.get_broker_config,
    "updateBrokerConfig": servers.update_broker_config,
    "getNamesrvConfig": servers.get_namesrv_config,
    "updateNamesrvConfig": servers.update_namesrv_config,
    "updateKvConfig": servers.update_kv_config,
    "deleteKvConfig": servers.delete_kv_config,
    "wipeWritePerm": servers.wipe_write_perm,
    "addWritePerm": servers.add_write_perm,
    "cleanExpiredCQ": servers.clean,
    "cleanUnusedTopic": servers.clean,
    "deleteExpiredCommitLog": servers.clean,
    "statsAll": topics.stats_all,
}
