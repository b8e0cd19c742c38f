"""`firearrow trace`."""

from __future__ import annotations

from dataclasses import asdict
from typing import Final

import click

from firearrow.admin.aio import Admin
from firearrow.admin.errors import NotFoundError
from firearrow.cli.arguments import TOPIC
from firearrow.cli.command import Group
from firearrow.cli.terminal import Output
from firearrow.wire.names import TRACE_TOPIC

EVENTS: Final = {
    "Pub": "sent",
    "Stored": "stored",
    "SubBefore": "delivered",
    "SubAfter": "consumed",
    "EndTransaction": "transaction decided",
    "Recall": "recalled",
}
_ENABLE: Final = "tracing is enabled in clients: trace=True in Python, --trace in `firearrow send` and `consume`"


trace = Group("trace")


@trace.admin_command("show", epilog="Example: firearrow trace show AC110002000118B4AAC2")
@click.argument("msg_id", metavar="ID")
@click.option("--trace-topic", type=TOPIC, default=TRACE_TOPIC, show_default=True, help="Topic with the traces.")
async def show(admin: Admin, out: Output, msg_id: str, trace_topic: str) -> None:
    """Show when a message was sent, stored, delivered and consumed. ID is the producer's message id or a key."""
    try:
        events = await admin.message_trace(msg_id, trace_topic=trace_topic)
    except NotFoundError:
        if trace_topic in await admin.topic_names():
            raise
        raise NotFoundError(f"no client has traced a message yet (topic {trace_topic} does not exist); {_ENABLE}") from None
    if not events:
        raise NotFoundError(f"no trace of message {msg_id!r}; {_ENABLE}")
    rows = [{"event": EVENTS.get(one.kind, one.kind)} | asdict(one) for one in events]
    out.rows(rows, ["time_ms", "event", "group", "client", "topic", "address", "cost_ms", "success", "retries", "outcome"])
