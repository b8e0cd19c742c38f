"""`firearrow trace ...`"""

from __future__ import annotations

import argparse
from dataclasses import asdict

from firearrow.admin.aio import Admin
from firearrow.cli.arguments import CommandGroup
from firearrow.cli.terminal import Output

WORDS = {
    "Pub": "sent",
    "Stored": "stored",
    "SubBefore": "delivered",
    "SubAfter": "consumed",
    "EndTransaction": "transaction decided",
    "Recall": "recalled",
}


def add(verbs: CommandGroup) -> None:
    show = verbs.add(
        "show", show_, "show the life of a message, as its clients traced it", example="trace show AC110002000118B4AAC2"
    )
    show.add_argument("msg_id", metavar="ID", help="the producer's id of a message, or a key")
    show.add_argument("--trace-topic", metavar="TOPIC", default="RMQ_SYS_TRACE_TOPIC", help="default: %(default)s")


async def show_(admin: Admin, options: argparse.Namespace, out: Output) -> int:
    events = await admin.message_trace(options.msg_id, trace_topic=options.trace_topic)
    rows = [{"event": WORDS.get(one.kind, one.kind)} | asdict(one) for one in events]
    out.rows(rows, ["time_ms", "event", "group", "client", "topic", "address", "cost_ms", "success", "retries", "outcome"])
    return 0 if rows else 1
