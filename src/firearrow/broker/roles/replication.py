"""What a broker asks of whoever copies its log to others, or another's log to it. The room `ha` has those who can."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from firearrow.broker.context import BrokerContext
from firearrow.broker.send.group_commit import GroupCommit
from firearrow.broker.tables.persistence import ConfigFiles
from firearrow.net.server import Connection
from firearrow.wire.bodies.admin import HARuntimeInfo
from firearrow.wire.frame import Command


@dataclass(slots=True)
class ReplicationHost:
    """The broker, as far as replication has to do with it."""

    parts: BrokerContext
    commit: GroupCommit
    config: ConfigFiles
    now_ms: Callable[[], int]
    # Of elected groups: this broker is the master from now on, of this term; it is no more, and why.
    lead: Callable[[int], None] = field(default=lambda term: None)
    follow: Callable[[str], None] = field(default=lambda reason: None)
    serve: Callable[[Connection, Command], None] = field(default=lambda conn, request: None)  # as if it had just come
    stand_in: Callable[[bool], None] = field(default=lambda wanted: None)  # be the stand-in (stand_in.py), or not any more
    pause: Callable[[bool], None] = field(default=lambda paused: None)  # sends are not taken for the moment, or again


PassOn = Callable[[Connection, Command], None]


class Replication(Protocol):
    """Its role does not change while the broker runs, unless a group elects it."""

    ha_address: str | None  # host:port that slaves are told to connect to; None: as the settings say
    pass_on: PassOn | None  # who takes requests that only the master can serve, while this broker is none

    async def start(self) -> None:
        """The broker's ports are open, the name servers have not heard of it."""

    async def hand_over(self) -> None:
        """The broker is about to stop: another may take its place first."""

    async def stop(self, *, abruptly: bool = False) -> None: ...

    def registered(self, ha_address: str | None, master_address: str | None) -> None:
        """What a name server says about the master."""

    def tick(self, now_ms: int) -> None: ...

    @property
    def master_alive(self) -> bool:
        """Of a slave: it hears its master. A master is one itself."""

    def status(self) -> HARuntimeInfo: ...


MakeReplication = Callable[[ReplicationHost], Replication]
