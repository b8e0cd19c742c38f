"""HTTP endpoint for Prometheus: GET /metrics on `metricsPromExporterHost`:`metricsPromExporterPort`.

A scrape of ten thousand topics has a hundred thousand lines. They are generated in the event loop, because only there the tables
do not change concurrently, but in slices of a millisecond with a longer pause after each: sends and pulls are not delayed.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterator

from firearrow.broker.context import BrokerContext
from firearrow.broker.observability.process import LoopLag
from firearrow.broker.observability.prometheus import Sources, pieces
from firearrow.config.fields import SettingError
from firearrow.net.address import format_address
from firearrow.net.http_endpoint import HttpPage
from firearrow.net.server import Ports

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
SLICE_S = 0.001
PAUSE_S = 0.004
_BLOCK = 256  # pieces that are joined and encoded at once

log = logging.getLogger("firearrow.broker")


class MetricsEndpoint:
    def __init__(
        self, broker: BrokerContext, open_transactions: Callable[[], int], ports: Ports, now_ms: Callable[[], int]
    ) -> None:
        self._broker = broker
        self._open_transactions = open_transactions
        self._ports = ports
        self._now_ms = now_ms
        self._common = {"cluster": broker.settings.broker_cluster_name, "node_id": broker.name, "node_type": "broker"}
        self._common |= parse_labels(broker.settings.metrics_label)
        self._lag = LoopLag()
        self._page = HttpPage("/metrics", CONTENT_TYPE, self._make)

    @property
    def port(self) -> int:
        return self._page.port

    async def start(self) -> None:
        host, port = self._broker.settings.metrics_prom_exporter_host, self._broker.settings.metrics_prom_exporter_port
        try:
            await self._page.start(host, port)
        except OSError as error:
            where, why = format_address(host, port), error.strerror or error
            raise OSError(f"metrics cannot be served on {where}: {why}; choose another metricsPromExporterPort") from error
        self._lag.start()
        log.info("metrics are at http://%s/metrics", format_address(host, self.port))

    async def stop(self) -> None:
        self._lag.stop()
        await self._page.stop()

    async def _make(self) -> list[bytes]:
        sources = Sources(self._ports.connections, self._open_transactions(), self._lag, self._common, self._ports.budget)
        return await in_slices(pieces(self._broker, sources, self._now_ms()))


async def in_slices(parts: Iterator[str], slice_s: float = SLICE_S, pause_s: float = PAUSE_S) -> list[bytes]:
    """Run the generator, pausing after each time slice, and join its output into blocks."""
    blocks: list[bytes] = []
    some: list[str] = []
    began = time.perf_counter()
    for part in parts:
        if part:
            some.append(part)
            if len(some) == _BLOCK:
                blocks.append("".join(some).encode())
                some.clear()
        if time.perf_counter() - began >= slice_s:
            await asyncio.sleep(pause_s)
            began = time.perf_counter()
    blocks.append("".join(some).encode())
    return blocks


def parse_labels(text: str) -> dict[str, str]:
    """Parse `region:here,rack:7`, Apache's format of metricsLabel."""
    labels = {}
    for pair in filter(None, text.split(",")):
        key, colon, value = pair.partition(":")
        if not colon or not key.isidentifier() or not key.isascii():
            raise SettingError("metricsLabel", text, "labels as name:value, joined by commas; names of letters, digits and _")
        labels[key] = value
    return labels
