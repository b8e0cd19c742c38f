"""Stores of consumed offsets: at the brokers, or, for broadcasting, in a local file.

Both stores have a table in memory that is updated while consuming (`note`) and saved every few seconds and at the end
(`persist`). Messages above the saved offset are delivered again after a crash.

The file of a broadcasting consumer has Apache's name and format, so that either client can continue from the other's offsets:

    ~/.rocketmq_offsets/<client id>/<group>/offsets.json     and offsets.json.bak, the previous version
    {"offsetTable":{{"brokerName":"broker-a","queueId":0,"topic":"T"}:128}}
"""

from __future__ import annotations

import asyncio
import logging
import os
from abc import ABC, abstractmethod
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from firearrow.atomic_file import replace_file
from firearrow.client.connection.instance import ClientInstance
from firearrow.client.consumer.queue_offsets import master_address
from firearrow.client.errors import BrokerError, ClientError, FirearrowError
from firearrow.client.message import MessageQueue
from firearrow.wire import fastjson
from firearrow.wire.bodies.admin import ResetOffsetBody
from firearrow.wire.bodies.client import QueueBody
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


class OffsetStore(ABC):
    """The offsets of a group in the queues of this consumer."""

    def __init__(self) -> None:
        self._noted: dict[MessageQueue, int] = {}

    def note(self, queue: MessageQueue, offset: int, *, only_forward: bool = False) -> None:
        """Record that all messages below `offset` are consumed. With `only_forward`, a smaller offset is ignored."""
        if not only_forward or self._noted.get(queue, -1) <= offset:
            self._noted[queue] = offset

    def noted(self, queue: MessageQueue) -> int | None:
        """Return the offset noted last, without a request."""
        return self._noted.get(queue)

    def table(self, topic: str | None = None) -> dict[MessageQueue, int]:
        """Return the noted offsets of one topic or of all."""
        return {queue: offset for queue, offset in self._noted.items() if topic is None or queue.topic == topic}

    def forget(self, queue: MessageQueue) -> None:
        """Forget a queue that now belongs to another member."""
        self._noted.pop(queue, None)

    @abstractmethod
    async def read(self, queue: MessageQueue) -> int | None:
        """Return the stored offset, or None if none is stored. FirearrowError if it is temporarily unavailable."""

    @abstractmethod
    async def persist(self, queues: Iterable[MessageQueue], *, confirmed: bool = False) -> None:
        """Save the noted offsets of these queues. With `confirmed`, wait for the responses."""


class BrokerOffsets(OffsetStore):
    """Offsets of a clustering group, stored by the broker of the queue."""

    def __init__(self, instance: ClientInstance, group: str) -> None:
        super().__init__()
        self._instance = instance
        self._group = group

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
                log.warning("committing an offset of group %s failed and will be retried: %s", self._group, outcome)
            elif isinstance(outcome, BaseException):
                raise outcome

    async def commit(self, queue: MessageQueue, offset: int, *, confirmed: bool = True) -> None:
        """Store one offset now, independent of what is noted. FirearrowError if that fails."""
        address = await master_address(self._instance, queue)
        header = UpdateConsumerOffsetRequestHeader(
            consumer_group=self._group, topic=queue.topic, queue_id=queue.queue_id, commit_offset=offset
        )
        if confirmed:
            await self._instance.check(address, header, timeout_ms=FINAL_TIMEOUT_MS)
        else:
            await self._instance.oneway(address, header)


class LocalOffsets(OffsetStore):
    """Offsets of one broadcasting consumer in a file. `directory` replaces `~/.rocketmq_offsets`."""

    def __init__(self, client_id: str, group: str, directory: str | os.PathLike[str] | None = None) -> None:
        super().__init__()
        home = Path.home() / LOCAL_DIRECTORY if directory is None else Path(directory)
        self.path = home / client_id / group / "offsets.json"
        self._saved = _load(self.path)

    def forget(self, queue: MessageQueue) -> None:
        """Keep the offset: a broadcasting consumer's queue has no other owner."""

    async def read(self, queue: MessageQueue) -> int | None:
        return self._noted.get(queue, self._saved.get(queue))

    async def persist(self, queues: Iterable[MessageQueue], *, confirmed: bool = False) -> None:
        wanted = {queue: self._noted[queue] for queue in queues if queue in self._noted}
        if wanted.items() <= self._saved.items():
            return
        try:
            _save(self.path, self._saved | wanted)
        except OSError as error:
            log.error("saving offsets to %s failed: %s; after a restart messages may be delivered again", self.path, error)
        else:
            self._saved |= wanted


def _load(path: Path) -> dict[MessageQueue, int]:
    """Load the offsets of a file, of its backup if it is damaged, or none if there is no file."""
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
    """Write the file atomically and keep the previous version as backup."""
    keyed = {QueueBody(queue.topic, queue.broker_name, queue.queue_id): table[queue] for queue in sorted(table)}
    text = fastjson.dumps_pretty(ResetOffsetBody(keyed).to_json())
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, text, backup=path.with_name(path.name + ".bak"))
