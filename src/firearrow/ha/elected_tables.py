"""What a follower copies from its leader beside the log: topics, groups, offsets. The requests are those of a slave (sync.py)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from firearrow.broker.roles.replication import ReplicationHost
from firearrow.ha.metadata_sync import MetadataCopy
from firearrow.net.channel import Channel
from firearrow.net.tls import client_context

MOST_MS = 1_000  # between two copies
_LOOK_S = 0.1

log = logging.getLogger("firearrow.ha.group")


class TableCopies:
    def __init__(self, broker: ReplicationHost, leader_address: Callable[[], str | None]) -> None:
        self._settings = broker.parts.settings
        self._leader_address = leader_address
        self._copy = MetadataCopy(broker)
        self._channel: Channel | None = None
        self._task: asyncio.Task[None] | None = None
        self._complained = False

    def start(self) -> None:
        self._task = asyncio.ensure_future(self._copy_always())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        self._forget_channel()

    async def _copy_always(self) -> None:
        while True:
            address = self._leader_address()
            if address is None:
                self._forget_channel()
                await asyncio.sleep(_LOOK_S)
                continue
            try:
                await self._copy.copy(await self._connected(address))
                self._complained = False
            except OSError as error:
                self._forget_channel()
                if not self._complained:
                    log.warning("topics, groups and offsets cannot be copied from %s: %s; trying again", address, error)
                self._complained = True
            await asyncio.sleep(min(self._settings.slave_sync_interval, MOST_MS) / 1000)

    async def _connected(self, address: str) -> Channel:
        if self._channel is None or self._channel.closed or self._channel.address != address:
            self._forget_channel()
            self._channel = await Channel.connect(address, tls=client_context(self._settings.use_tls))
        return self._channel

    def _forget_channel(self) -> None:
        channel, self._channel = self._channel, None
        if channel is not None and not channel.closed:
            channel.abandon("not needed any more")
