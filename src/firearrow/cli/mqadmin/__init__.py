"""`firearrow mqadmin SUBCOMMAND`: Apache's administration tool with its option names and output format.

The common subcommands are implemented; the error of another one names the command to use instead. Destructive subcommands ask for
confirmation, unlike Apache's tool. `--yes`, or FIREARROW_YES=1 in the environment, skips the question. Credentials come from the
options of all commands, or from Apache's $ROCKETMQ_HOME/conf/tools.yml.

May import admin, client, wire and the other modules of cli.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from functools import partial
from types import SimpleNamespace
from typing import Any, Final, NamedTuple

import click

from firearrow.admin.aio import Admin
from firearrow.cli.arguments import NAMESRV_ADDR, did_you_mean
from firearrow.cli.command import Group, run_admin
from firearrow.cli.mqadmin import auth, groups, messages, servers, topics
from firearrow.cli.security import SECURITY_OPTIONS
from firearrow.cli.terminal import Output

YES_VARIABLE: Final = "FIREARROW_YES"


class Flag(NamedTuple):
    """An option of a subcommand, under Apache's names."""

    short: str
    name: str
    help: str
    required: bool = False
    default: str | None = None
    switch: bool = False


class Subcommand(NamedTuple):
    """A subcommand: its function and its options in addition to -n."""

    function: Callable[[Admin, SimpleNamespace], Awaitable[None]]
    flags: tuple[Flag, ...] = ()
    destructive: bool = False


def _needs(short: str, name: str, help_: str) -> Flag:
    return Flag(short, name, help_, required=True)


_TOPIC = _needs("t", "topic", "topic name")
_GROUP = _needs("g", "groupName", "group name")
_CLUSTER = Flag("c", "clusterName", "cluster name")
_BROKER = Flag("b", "brokerAddr", "broker address")
_USER = _needs("u", "username", "user name")
_SUBJECT = _needs("s", "subject", "User:name")
_ENTRY = (
    _needs("r", "resources", "resources, separated by commas"), _needs("a", "actions", "actions, separated by commas"),
    Flag("i", "sourceIp", "addresses, separated by commas"), _needs("d", "decision", "Allow or Deny"),
)  # fmt: skip
_COPY = (_needs("f", "fromBroker", "address to copy from"), _needs("t", "toBroker", "address to copy to"))

SUBCOMMANDS: Final[dict[str, Subcommand]] = {
    "updateTopic": Subcommand(topics.update_topic, (
        _TOPIC, _CLUSTER, _BROKER, Flag("r", "readQueueNums", "default 8", default="8"),
        Flag("w", "writeQueueNums", "default 8", default="8"), Flag("p", "perm", "2, 4 or 6; default 6", default="6"),
        Flag("o", "order", "true or false", default="false"), Flag("a", "attributes", "+name=value,-name"),
        Flag("u", "unit", "ignored"), Flag("s", "hasUnitSub", "ignored"),
    )),
    "deleteTopic": Subcommand(topics.delete_topic, (_TOPIC, _CLUSTER), destructive=True),
    "updateTopicPerm": Subcommand(topics.update_topic_perm, (_TOPIC, _CLUSTER, _BROKER, _needs("p", "perm", "2, 4 or 6"))),
    "topicList": Subcommand(topics.topic_list, (Flag("c", "clusterModel", "with clusters and groups", switch=True),)),
    "topicRoute": Subcommand(topics.topic_route, (_TOPIC, Flag("l", "list", "print a list", switch=True))),
    "topicStatus": Subcommand(topics.topic_status, (_TOPIC, _CLUSTER)),
    "topicClusterList": Subcommand(topics.topic_cluster_list, (_TOPIC,)),
    "updateOrderConf": Subcommand(topics.update_order_conf, (
        _TOPIC, _needs("m", "method", "get, put or delete"), Flag("v", "orderConf", "broker:queues, joined by semicolons"),
    ), destructive=True),
    "clusterList": Subcommand(servers.cluster_list, (
        Flag("m", "moreStats", "print totals", switch=True), Flag("c", "clusterName", "cluster name"),
    )),
    "brokerStatus": Subcommand(servers.broker_status, (_CLUSTER, _BROKER)),
    "brokerConsumeStats": Subcommand(servers.broker_consume_stats, (
        _needs("b", "brokerAddr", "broker address"), Flag("l", "level", "smallest lag shown", default="0"),
        Flag("o", "order", "ignored"),
    )),
    "getBrokerConfig": Subcommand(servers.get_broker_config, (_CLUSTER, _BROKER, Flag("k", "keyPattern", "part of a key"))),
    "updateBrokerConfig": Subcommand(servers.update_broker_config, (
        _CLUSTER, _BROKER, _needs("k", "key", "key"), _needs("v", "value", "value"),
    ), destructive=True),
    "getNamesrvConfig": Subcommand(servers.get_namesrv_config, ()),
    "updateNamesrvConfig": Subcommand(servers.update_namesrv_config, (
        _needs("k", "key", "key"), _needs("v", "value", "value"),
    ), destructive=True),
    "updateKvConfig": Subcommand(servers.update_kv_config, (
        _needs("s", "namespace", "namespace"), _needs("k", "key", "key"), _needs("v", "value", "value"),
    )),
    "deleteKvConfig": Subcommand(servers.delete_kv_config, (
        _needs("s", "namespace", "namespace"), _needs("k", "key", "key"),
    ), destructive=True),
    "wipeWritePerm": Subcommand(servers.wipe_write_perm, (_needs("b", "brokerName", "broker name"),), destructive=True),
    "addWritePerm": Subcommand(servers.add_write_perm, (_needs("b", "brokerName", "broker name"),)),
    "cleanExpiredCQ": Subcommand(servers.clean, (_CLUSTER, _BROKER), destructive=True),
    "cleanUnusedTopic": Subcommand(servers.clean, (_CLUSTER, _BROKER), destructive=True),
    "deleteExpiredCommitLog": Subcommand(servers.clean, (_CLUSTER, _BROKER), destructive=True),
    "updateSubGroup": Subcommand(groups.update_sub_group, (
        _GROUP, _CLUSTER, _BROKER, Flag("s", "consumeEnable", "true or false"),
        Flag("m", "consumeFromMinEnable", "true or false"),
        Flag("d", "consumeBroadcastEnable", "true or false"), Flag("o", "consumeMessageOrderly", "true or false"),
        Flag("q", "retryQueueNums", "queues of the retry topic"), Flag("r", "retryMaxTimes", "maximum number of redeliveries"),
    )),
    "deleteSubGroup": Subcommand(groups.delete_sub_group, (
        _GROUP, _CLUSTER, _BROKER, Flag("r", "removeOffset", "true or false", default="false"),
    ), destructive=True),
    "getConsumerConfig": Subcommand(groups.get_consumer_config, (_GROUP,)),
    "consumerProgress": Subcommand(groups.consumer_progress, (
        Flag("g", "groupName", "group name"), Flag("t", "topicName", "topic name"),
        Flag("s", "showClientIP", "true or false", default="false"),
    )),
    "consumerConnection": Subcommand(groups.consumer_connection, (_needs("g", "consumerGroup", "group name"), _BROKER)),
    "producerConnection": Subcommand(groups.producer_connection, (_needs("g", "producerGroup", "group name"), _TOPIC)),
    "producer": Subcommand(groups.producer, (_needs("b", "broker", "broker address"),)),
    "resetOffsetByTime": Subcommand(groups.reset_offset_by_time, (
        _needs("g", "group", "group name"), _TOPIC, _needs("s", "timestamp", "now, milliseconds or yyyy-MM-dd#HH:mm:ss:SSS"),
        Flag("f", "force", "ignored", default="true"), Flag("c", "cplus", "ignored", switch=True),
        Flag("b", "broker", "broker address"), Flag("q", "queue", "queue id"), Flag("o", "offset", "offset"),
    ), destructive=True),
    "skipAccumulatedMessage": Subcommand(groups.skip_accumulated_message, (
        _needs("g", "group", "group name"), _TOPIC, Flag("f", "force", "ignored", default="true"),
    ), destructive=True),
    "cloneGroupOffset": Subcommand(groups.clone_group_offset, (
        _needs("s", "srcGroup", "group to copy from"), _needs("d", "destGroup", "group to copy to"), _TOPIC,
        Flag("o", "offline", "whether the target is offline", default="true"),
    ), destructive=True),
    "queryMsgById": Subcommand(messages.query_msg_by_id, (
        _needs("i", "msgId", "ids, separated by commas"), Flag("t", "topic", "topic name"), Flag("f", "bodyFormat", "ignored"),
    )),
    "queryMsgByUniqueKey": Subcommand(messages.query_msg_by_unique_key, (
        _needs("i", "msgId", "id that the producer gave"), _TOPIC,
    )),
    "queryMsgByKey": Subcommand(messages.query_msg_by_key, (
        _TOPIC, _needs("k", "msgKey", "key"), Flag("b", "beginTimestamp", "ms"), Flag("e", "endTimestamp", "ms"),
        Flag("m", "maxNum", "maximum number", default="64"),
    )),
    "queryMsgByOffset": Subcommand(messages.query_msg_by_offset, (
        _TOPIC, _needs("b", "brokerName", "broker name"), _needs("i", "queueId", "queue id"), _needs("o", "offset", "offset"),
        Flag("f", "bodyFormat", "ignored"),
    )),
    "printMsg": Subcommand(messages.print_msg, (
        _TOPIC, Flag("s", "subExpression", "tags", default="*"), Flag("c", "charsetName", "ignored"),
        Flag("b", "beginTimestamp", "ms, or yyyy-MM-dd#HH:mm:ss:SSS"), Flag("e", "endTimestamp", "same format"),
        Flag("d", "printBody", "true or false", default="true"),
    )),
    "statsAll": Subcommand(topics.stats_all, (
        Flag("a", "activeTopic", "only topics with traffic", switch=True), Flag("t", "topic", "topic name"),
    )),
    "queryMsgTraceById": Subcommand(messages.query_msg_trace_by_id, (
        _needs("i", "msgId", "id that the producer gave"),
        Flag("t", "traceTopic", "topic", default="RMQ_SYS_TRACE_TOPIC"),
    )),
    "createUser": Subcommand(auth.create_user, (
        _CLUSTER, _BROKER, _USER, _needs("p", "password", "password"),
        Flag("t", "userType", "Super or Normal", default="Normal"),
    )),
    "updateUser": Subcommand(auth.update_user, (
        _CLUSTER, _BROKER, _USER, Flag("p", "password", "password"), Flag("t", "userType", "Super or Normal"),
        Flag("s", "userStatus", "enable or disable"),
    )),
    "deleteUser": Subcommand(auth.delete_user, (_CLUSTER, _BROKER, _USER), destructive=True),
    "getUser": Subcommand(auth.get_user, (_CLUSTER, _BROKER, _USER)),
    "listUser": Subcommand(auth.list_user, (_CLUSTER, _BROKER, Flag("f", "filter", "part of a name"))),
    "copyUser": Subcommand(auth.copy_user, (*_COPY, Flag("u", "username", "names, separated by commas"))),
    "createAcl": Subcommand(auth.create_acl, (_CLUSTER, _BROKER, _SUBJECT, *_ENTRY)),
    "updateAcl": Subcommand(auth.update_acl, (_CLUSTER, _BROKER, _SUBJECT, *_ENTRY)),
    "deleteAcl": Subcommand(auth.delete_acl, (
        _CLUSTER, _BROKER, _SUBJECT, Flag("r", "resources", "resource"), Flag("t", "policyType", "Custom or Default"),
    ), destructive=True),
    "getAcl": Subcommand(auth.get_acl, (_CLUSTER, _BROKER, _SUBJECT)),
    "listAcl": Subcommand(auth.list_acl, (
        _CLUSTER, _BROKER, Flag("s", "subject", "part of a subject"), Flag("r", "resource", "part of a resource"),
    )),
    "copyAcl": Subcommand(auth.copy_acl, (*_COPY, Flag("s", "subjects", "subjects, separated by commas"))),
}  # fmt: skip

ELSEWHERE: Final = {
    "sendMessage": "firearrow send",
    "consumeMessage": "firearrow consume",
    "consumerStatus": "firearrow client show, or firearrow doctor",
    "checkMsgSendRT": "firearrow bench send --in-flight 1",
    "sendMsgStatus": "firearrow bench send",
    "haStatus": "firearrow broker replication",
    "consumeMessageDirectly": "firearrow message consume",
}


class MqadminGroup(Group):
    """The subcommands, built from the table."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(SUBCOMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return _command(cmd_name) if cmd_name in SUBCOMMANDS else None

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name == "help":
            args = [*args[1:2], "--help"]
        elif name not in SUBCOMMANDS and not ctx.resilient_parsing and not name.startswith("-"):
            instead = f"use {ELSEWHERE[name]}" if name in ELSEWHERE else did_you_mean(name, SUBCOMMANDS)
            instead = instead or f"expected one of {', '.join(SUBCOMMANDS)}"
            raise click.UsageError(f"no such subcommand {name!r}; {instead}", ctx)
        return super().resolve_command(ctx, args)

    def _described(self, ctx: click.Context, name: str) -> tuple[str, str]:
        flags = SUBCOMMANDS[name].flags
        return "Subcommands", " ".join(f"-{flag.short}" if flag.required else f"[-{flag.short}]" for flag in flags)


mqadmin = MqadminGroup("mqadmin", help="Apache's mqadmin: its common subcommands, options and output.")


def _command(name: str) -> click.Command:
    subcommand = SUBCOMMANDS[name]
    options: list[click.Parameter] = [
        click.Option(
            ["-n", "--namesrvAddr", "namesrv"],
            metavar="ADDR;ADDR",
            envvar="NAMESRV_ADDR",
            default=NAMESRV_ADDR,
            help=f"Name servers. Default: $NAMESRV_ADDR, or {NAMESRV_ADDR}.",
        )
    ]
    for flag in subcommand.flags:
        default: dict[str, Any] = {} if flag.required else {"default": False if flag.switch else flag.default}
        names = [f"-{flag.short}", f"--{flag.name}", flag.name]
        options.append(click.Option(names, is_flag=flag.switch, required=flag.required, help=flag.help, **default))
    if subcommand.destructive:
        options.append(click.Option(["--yes"], is_flag=True, envvar=YES_VARIABLE, help="do not ask for confirmation"))
        options.append(click.Option(["--dry-run"], is_flag=True, help="only print what would be done"))

    async def call(admin: Admin, out: Output, **parameters: Any) -> None:
        await subcommand.function(admin, SimpleNamespace(subcommand=name, confirmed=out.confirmed, **parameters))

    keys = os.path.join(os.environ["ROCKETMQ_HOME"], "conf", "tools.yml") if "ROCKETMQ_HOME" in os.environ else None
    callback = partial(run_admin, call, default_credentials_file=keys)
    command = click.Command(name, params=options, callback=callback)
    for option in SECURITY_OPTIONS:
        option(command)
    return command
