"""How far a group has consumed: kept by the brokers, or, for broadcasting, in a file of this machine.

Both stores have a table in memory that is written while consuming (`note`) and saved every few seconds and at the end
(`persist`). What was noted and not saved is consumed again after a crash.

The file of a broadcasting consumer is Apache's, by name and content, so that either client can go on where the other was:

    ~/.rocketmq_offsets/<client id>/<group>/offsets.json     and offsets.json.bak, the one before
    {"offsetTable":{{"brokerName":"broker-a","queueId":0,"topic":"T"}:128}}
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final, Protocol

from firearrow.atomic_file import replace_file
from firearrow.client.connection.instance import ClientInstance
from firearrow.client.consumer.queue_offsets import master_address
from firearrow.client.errors import BrokerError, ClientError, FirearrowError
from firearrow.client.message import MessageQueue
from firearrow.wire import bodies, fastjson
from firearrow.wire.bodies.admin import ResetOffsetBody
from firearrow.wire.codes import ResponseCode
from firearrow.wire.errors import ProtocolError
from firearrow.wire.headers.client import (
    QueryConsumerOffsetRequestHeader,
    QueryConsumerOffsetResponseHeader,
    UpdateConsumerOffsetRequestHeader,
)

LOCAL_DIRECTORY: Final = ".rocketmq_offsets"
FINAL_TIMEOUT_MS: Final = 3_000

log = logging.getLogger("firearrow.client")


class OffsetStore(Protocol):
    def note(self, queue: MessageQueue, offset: int, *, only_forward: bool = False) -> None:
        """The group has consumed everything below `offset`. With `only_forward` a smaller one than known is ignored."""

    def noted(self, queue: MessageQueue) -> int | None:
        """What was noted last, without asking anybody."""

    def table(self, topic: str | None = None) -> dict[MessageQueue, int]:
        """All that is noted, of one topic or of all."""

    def forget(self, queue: MessageQueue) -> None:
        """The queue is somebody else's now."""

    async def read(self, queue: MessageQueue) -> int | None:
        """What is stored, None if nothing is. FirearrowError if it cannot be known; ask again later then."""

    async def persist(self, queues: Iterable[MessageQueue], *, confirmed: bool = False) -> None:
        """Saves what is noted for these queues. With `confirmed` it returns when that has happened or has failed."""


class BrokerOffsets:
    """The offsets of a clustering group, kept by the broker that has the queue."""

    def __init__(self, instance: ClientInstance, group: str) -> None:
        self._instance = instance
        self._group = group
        self._noted: dict[MessageQueue, int] = {}

    def note(self, queue: MessageQueue, offset: int, *, only_forward: bool = False) -> None:
        _note(self._noted, queue, offset, only_forward)

    def noted(self, queue: MessageQueue) -> int | None:
        return self._noted.get(queue)

    def table(self, topic: str | None = None) -> dict[MessageQueue, int]:
        return {queue: offset for queue, offset in self._noted.items() if topic is None or queue.topic == topic}

    def forget(self, queue: MessageQueue) -> None:
        self._noted.pop(queue, None)

    async def read(self, queue: MessageQueue) -> int | None:
        address = await master_address(self._instance, queue)
        header = QueryConsumerOffsetRequestHeader(consumer_group=self._group, topic=queue.topic, queue_id=queue.queue_id)
        answer = await self._instance.call(address, header)
        if answer.code == ResponseCode.QUERY_NOT_FOUND:
            return None
        if answer.code != ResponseCode.SUCCESS:
            raise BrokerError(answer.code, answer.remark, address)
        return QueryConsumerOffsetResponseHeader.decode(answer.ext).offset

    async def persist(self, queues: Iterable[MessageQueue], *, confirmed: bool = False) -> None:
        commits = [self.commit(queue, self._noted[queue], confirmed=confirmed) for queue in queues if queue in self._noted]
        for outcome in await asyncio.gather(*commits, return_exceptions=True):
            if isinstance(outcome, FirearrowError):
                log.warning("an offset of group %s was not committed: %s; it is tried again later", self._group, outcome)
            elif isinstance(outcome, BaseException):
                raise outcome

    async def commit(self, queue: MessageQueue, offset: int, *, confirmed: bool = True) -> None:
        """Stores one offset now, whatever is noted. FirearrowError if that fails."""
        address = await master_address(self._instance, queue)
        header = UpdateConsumerOffsetRequestHeader(
            consumer_group=self._group, topic=queue.topic, queue_id=queue.queue_id, commit_offset=offset
        )
        if confirmed:
            await self._instance.check(address, header, timeout_ms=FINAL_TIMEOUT_MS)
        else:
            await self._instance.oneway(address, header)


class LocalOffsets:
    """The offsets of one broadcasting consumer, in a file. `directory` stands in for `~/.rocketmq_offsets`."""

    def __init__(self, client_id: str, group: str, directory: str | os.PathLike[str] | None = None) -> None:
        home = Path.home() / LOCAL_DIRECTORY if directory is None else Path(directory)
        self.path = home / client_id / group / "offsets.json"
        self._noted: dict[MessageQueue, int] = {}
        self._saved: dict[MessageQueue, int] = _load(self.path)

    def note(self, queue: MessageQueue, offset: int, *, only_forward: bool = False) -> None:
        _note(self._noted, queue, offset, only_forward)

    def noted(self, queue: MessageQueue) -> int | None:
        return self._noted.get(queue)

    def table(self, topic: str | None = None) -> dict[MessageQueue, int]:
        return {queue: offset for queue, offset in self._noted.items() if topic is None or queue.topic == topic}

    def forget(self, queue: MessageQueue) -> None:
        """Nobody else takes a broadcasting consumer's queue: what was consumed stays on record."""

    async def read(self, queue: MessageQueue) -> int | None:
        return self._noted.get(queue, self._saved.get(queue))

    async def persist(self, queues: Iterable[MessageQueue], *, confirmed: bool = False) -> None:
        wanted = {queue: self._noted[queue] for queue in queues if queue in self._noted}
        if wanted.items() <= self._saved.items():
            return
        try:
            _save(self.path, self._saved | wanted)
        except OSError as error:
            log.error("offsets were not saved to %s: %s; after a restart messages may come again", self.path, error)
        else:
            self._saved |= wanted


def _note(noted: dict[MessageQueue, int], queue: MessageQueue, offset: int, only_forward: bool) -> None:
    if only_forward and noted.get(queue, -1) > offset:
        return
    noted[queue] = offset


def _load(path: Path) -> dict[MessageQueue, int]:
    """The offsets of a file; of the copy before it, if the file is damaged; none, if there is no file."""
    for candidate in (path, path.with_name(path.name + ".bak")):
        try:
            text = candidate.read_bytes()
        except FileNotFoundError:
            continue
        except OSError as error:
            raise ClientError(f"the offsets in {candidate} cannot be read: {error}") from None
        try:
            table = ResetOffsetBody.from_json(fastjson.loads(text)).offset_table
        except ProtocolError as error:
            log.warning("the offsets in %s are damaged: %s", candidate, error)
            continue
        return {MessageQueue(queue.topic, queue.broker_name, queue.queue_id): offset for queue, offset in table.items()}
    return {}


def _save(path: Path, table: dict[MessageQueue, int]) -> None:
    """Written beside, synced and moved into place: there is a whole file at any moment."""
    keyed = {bodies.QueueBody(queue.topic, queue.broker_name, queue.queue_id): table[queue] for queue in sorted(table)}
    text = fastjson.dumps_pretty(ResetOffsetBody(keyed).to_json())
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, text, backup=path.with_name(path.name + ".bak"))
