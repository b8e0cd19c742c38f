"""`firearrow mqadmin SUBCOMMAND ...`: Apache's administration tool by its names and flags, printing as it does.

Only the common subcommands are here; the rest say where to find what they do. Those that destroy something ask, or want `--yes`
(or FIREARROW_YES=1 in the environment), which Apache's tool does not.
"""

from __future__ import annotations

import argparse
import difflib
import os
from collections.abc import Sequence
from typing import Final, NamedTuple

from firearrow.cli.arguments import LineParser
from firearrow.cli.messages.arguments import DEFAULT_NAME_SERVER

YES_VARIABLE: Final = "FIREARROW_YES"


class Flag(NamedTuple):
    short: str
    name: str
    help: str
    required: bool = False
    default: str | None = None
    switch: bool = False


def _needs(short: str, name: str, help_: str) -> Flag:
    return Flag(short, name, help_, required=True)


_TOPIC = _needs("t", "topic", "topic name")
_GROUP = _needs("g", "groupName", "group name")
_CLUSTER = Flag("c", "clusterName", "cluster name")
_BROKER = Flag("b", "brokerAddr", "broker address")

# subcommand -> flags, beside -n
SUBCOMMANDS: Final[dict[str, tuple[Flag, ...]]] = {
    "updateTopic": (
        _TOPIC, _CLUSTER, _BROKER, Flag("r", "readQueueNums", "default 8", default="8"),
        Flag("w", "writeQueueNums", "default 8", default="8"), Flag("p", "perm", "2, 4 or 6; default 6", default="6"),
        Flag("o", "order", "true or false", default="false"), Flag("a", "attributes", "+name=value,-name"),
        Flag("u", "unit", "not used"), Flag("s", "hasUnitSub", "not used"),
    ),
    "deleteTopic": (_TOPIC, _CLUSTER),
    "updateTopicPerm": (_TOPIC, _CLUSTER, _BROKER, _needs("p", "perm", "2, 4 or 6")),
    "topicList": (Flag("c", "clusterModel", "with clusters and groups", switch=True),),
    "topicRoute": (_TOPIC, Flag("l", "list", "as a list", switch=True)),
    "topicStatus": (_TOPIC, _CLUSTER),
    "topicClusterList": (_TOPIC,),
    "updateOrderConf": (
        _TOPIC, _needs("m", "method", "get, put or delete"), Flag("v", "orderConf", "broker:queues, joined by semicolons"),
    ),
    "clusterList": (Flag("m", "moreStats", "totals", switch=True), Flag("c", "clusterName", "cluster name")),
    "brokerStatus": (_CLUSTER, _BROKER),
    "brokerConsumeStats": (
        _needs("b", "brokerAddr", "broker address"), Flag("l", "level", "least lag shown", default="0"),
        Flag("o", "order", "not used"),
    ),
    "getBrokerConfig": (_CLUSTER, _BROKER, Flag("k", "keyPattern", "part of a key")),
    "updateBrokerConfig": (_CLUSTER, _BROKER, _needs("k", "key", "key"), _needs("v", "value", "value")),
    "getNamesrvConfig": (),
    "updateNamesrvConfig": (_needs("k", "key", "key"), _needs("v", "value", "value")),
    "updateKvConfig": (_needs("s", "namespace", "namespace"), _needs("k", "key", "key"), _needs("v", "value", "value")),
    "deleteKvConfig": (_needs("s", "namespace", "namespace"), _needs("k", "key", "key")),
    "wipeWritePerm": (_needs("b", "brokerName", "broker name"),),
    "addWritePerm": (_needs("b", "brokerName", "broker name"),),
    "cleanExpiredCQ": (_CLUSTER, _BROKER),
    "cleanUnusedTopic": (_CLUSTER, _BROKER),
    "deleteExpiredCommitLog": (_CLUSTER, _BROKER),
    "updateSubGroup": (
        _GROUP, _CLUSTER, _BROKER, Flag("s", "consumeEnable", "true or false"),
        Flag("m", "consumeFromMinEnable", "true or false"),
        Flag("d", "consumeBroadcastEnable", "true or false"), Flag("o", "consumeMessageOrderly", "true or false"),
        Flag("q", "retryQueueNums", "queues of the retry topic"), Flag("r", "retryMaxTimes", "deliveries again"),
    ),
    "deleteSubGroup": (_GROUP, _CLUSTER, _BROKER, Flag("r", "removeOffset", "true or false", default="false")),
    "getConsumerConfig": (_GROUP,),
    "consumerProgress": (
        Flag("g", "groupName", "group name"), Flag("t", "topicName", "topic name"),
        Flag("s", "showClientIP", "true or false", default="false"),
    ),
    "consumerConnection": (_needs("g", "consumerGroup", "group name"), _BROKER),
    "producerConnection": (_needs("g", "producerGroup", "group name"), _TOPIC),
    "producer": (_needs("b", "broker", "broker address"),),
    "resetOffsetByTime": (
        _needs("g", "group", "group name"), _TOPIC, _needs("s", "timestamp", "now, milliseconds or yyyy-MM-dd#HH:mm:ss:SSS"),
        Flag("f", "force", "not used", default="true"), Flag("c", "cplus", "not used", switch=True),
        Flag("b", "broker", "broker address"), Flag("q", "queue", "queue id"), Flag("o", "offset", "offset"),
    ),
    "skipAccumulatedMessage": (_needs("g", "group", "group name"), _TOPIC, Flag("f", "force", "not used", default="true")),
    "cloneGroupOffset": (
        _needs("s", "srcGroup", "group to copy from"), _needs("d", "destGroup", "group to copy to"), _TOPIC,
        Flag("o", "offline", "whether the target is offline", default="true"),
    ),
    "queryMsgById": (
        _needs("i", "msgId", "ids, separated by commas"), Flag("t", "topic", "topic name"), Flag("f", "bodyFormat", "not used"),
    ),
    "queryMsgByUniqueKey": (_needs("i", "msgId", "id that the producer gave"), _TOPIC),
    "queryMsgByKey": (
        _TOPIC, _needs("k", "msgKey", "key"), Flag("b", "beginTimestamp", "ms"), Flag("e", "endTimestamp", "ms"),
        Flag("m", "maxNum", "at most", default="64"),
    ),
    "queryMsgByOffset": (
        _TOPIC, _needs("b", "brokerName", "broker name"), _needs("i", "queueId", "queue id"), _needs("o", "offset", "offset"),
        Flag("f", "bodyFormat", "not used"),
    ),
    "printMsg": (
        _TOPIC, Flag("s", "subExpression", "tags", default="*"), Flag("c", "charsetName", "not used"),
        Flag("b", "beginTimestamp", "ms, or yyyy-MM-dd#HH:mm:ss:SSS"), Flag("e", "endTimestamp", "the same"),
        Flag("d", "printBody", "true or false", default="true"),
    ),
    "statsAll": (Flag("a", "activeTopic", "only topics with traffic", switch=True), Flag("t", "topic", "topic name")),
    "queryMsgTraceById": (
        _needs("i", "msgId", "id that the producer gave"),
        Flag("t", "traceTopic", "topic", default="RMQ_SYS_TRACE_TOPIC"),
    ),
}  # fmt: skip

DESTROYS: Final = frozenset((
    "deleteTopic", "deleteSubGroup", "deleteKvConfig", "wipeWritePerm", "resetOffsetByTime", "skipAccumulatedMessage",
    "cloneGroupOffset", "updateBrokerConfig", "updateNamesrvConfig", "cleanExpiredCQ", "cleanUnusedTopic",
    "deleteExpiredCommitLog", "updateOrderConf",
))  # fmt: skip

ELSEWHERE: Final = {
    "sendMessage": "firearrow send",
    "consumeMessage": "firearrow consume",
    "consumerStatus": "firearrow client show, or firearrow doctor",
    "checkMsgSendRT": "firearrow bench send --in-flight 1",
    "sendMsgStatus": "firearrow bench send",
    "haStatus": "firearrow broker replication",
    "consumeMessageDirectly": "firearrow message consume",
}


def run(words: Sequence[str]) -> int:
    """The words after `mqadmin`."""
    options = understand(words)
    from firearrow.cli.operator.run import carry_out

    return carry_out(options)


def understand(words: Sequence[str]) -> argparse.Namespace:
    names = ", ".join(SUBCOMMANDS)
    if not words or words[0] in ("-h", "--help", "help"):
        parser = LineParser(prog="firearrow mqadmin", description="Apache's administration tool, the common subcommands.")
        parser.add_argument("subcommand", metavar="SUBCOMMAND", choices=list(SUBCOMMANDS), help=names)
        parser.parse_args(["--help"] if words else [])
    name = words[0]
    if name not in SUBCOMMANDS:
        close = difflib.get_close_matches(name, SUBCOMMANDS, n=1)
        instead = f"use {ELSEWHERE[name]}" if name in ELSEWHERE else f"expected one of {names}"
        if close and name not in ELSEWHERE:
            instead = f"did you mean {close[0]}?"
        LineParser(prog="firearrow mqadmin").error(f"there is no subcommand {name!r} here; {instead}")
    parser = LineParser(prog=f"firearrow mqadmin {name}", allow_abbrev=False)
    parser.add_argument(
        "-n",
        "--namesrvAddr",
        dest="name_server",
        metavar="ADDR;ADDR",
        default=os.environ.get("NAMESRV_ADDR") or DEFAULT_NAME_SERVER,
    )
    for flag in SUBCOMMANDS[name]:
        if flag.switch:
            parser.add_argument(f"-{flag.short}", f"--{flag.name}", dest=flag.name, action="store_true", help=flag.help)
        else:
            parser.add_argument(
                f"-{flag.short}", f"--{flag.name}", dest=flag.name, required=flag.required, default=flag.default, help=flag.help
            )
    if name in DESTROYS:
        parser.add_argument("--yes", action="store_true", default=bool(os.environ.get(YES_VARIABLE)), help="do not ask")
        parser.add_argument("--dry-run", action="store_true", help="only say what would be done")
    parser.set_defaults(run=_carry_out, parser=parser, subcommand=name, output="table", access_key=None, tls=False, timeout=5.0)
    options, unknown = parser.parse_known_args(list(words[1:]))
    if unknown:
        parser.error(f"unknown argument {unknown[0]}; {parser.nearest(unknown[0])}")
    return options


async def _carry_out(admin: object, options: argparse.Namespace, out: object) -> int:
    from firearrow.cli.mqadmin import mqadmin_commands

    return await mqadmin_commands.carry_out(admin, options)  # type: ignore[arg-type]  # typed there: argparse knows no types
