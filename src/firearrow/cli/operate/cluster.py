"""`firearrow cluster ...`"""

from __future__ import annotations

import argparse

from firearrow.admin.aio import Admin
from firearrow.cli.operate.broker import summary
from firearrow.cli.operate.words import Verbs
from firearrow.cli.output import Output


def add(verbs: Verbs) -> None:
    verbs.add("list", list_, "list clusters with what their brokers do together")
    show = verbs.add("show", show_, "show the brokers of a cluster with their addresses")
    show.add_argument("cluster", metavar="CLUSTER", nargs="?")


async def list_(admin: Admin, options: argparse.Namespace, out: Output) -> None:
    brokers = await admin.list_brokers()
    topics = await admin.list_topics()
    rows = []
    for cluster in sorted({one.cluster for one in brokers}):
        members = [await summary(admin, one) for one in brokers if one.cluster == cluster]
        masters = {one["broker"] for one in members if one["broker_id"] == 0}
        rows.append(
            {
                "cluster": cluster,
                "masters": len(masters),
                "slaves": len(members) - len(masters),
                "topics": sum(1 for topic in topics if masters & set(topic.brokers) and topic.kind == "normal"),
                "put_tps": sum(one["put_tps"] or 0.0 for one in members),
                "get_tps": sum(one["get_tps"] or 0.0 for one in members),
                "unreachable": [one["broker"] for one in members if one["problem"]],
            }
        )
    out.rows(rows, ["cluster", "masters", "slaves", "topics", "put_tps", "get_tps", "unreachable"])


async def show_(admin: Admin, options: argparse.Namespace, out: Output) -> None:
    rows = [
        {"cluster": one.cluster, "broker": one.name, "broker_id": one.broker_id, "address": one.address}
        for one in await admin.list_brokers(cluster=options.cluster)
    ]
    out.rows(rows, ["cluster", "broker", "broker_id", "address"])
