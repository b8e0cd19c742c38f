"""Who is the master: what changes in a broker when it becomes one, or another does.

A slave has other handlers than a master, and takes no sends. A member of an elected group changes from one to the other while it
runs (`lead`, `follow`); one with a fixed role is set up once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from firearrow.broker.context import BrokerContext, Handler
from firearrow.broker.pull.handler import PullHandler
from firearrow.broker.registration import Identity, Registration, Topics
from firearrow.broker.requests.dispatcher import RequestDispatcher
from firearrow.broker.requests.responses import json_answer
from firearrow.broker.roles import slave_requests
from firearrow.broker.roles.master_services import MasterServices
from firearrow.broker.roles.proxy_registration import ProxyRegistration
from firearrow.broker.roles.replication import MakeReplication, Replication, ReplicationHost
from firearrow.broker.send.group_commit import GroupCommit
from firearrow.broker.send.handler import SendHandler
from firearrow.broker.tables.change_log import MetadataChangeLog
from firearrow.broker.tables.persistence import ConfigFiles
from firearrow.net.server import Connection
from firearrow.wire.codes import RequestCode
from firearrow.wire.frame import Command


@dataclass(frozen=True, slots=True)
class RoleServices:
    """What knows whether this broker is the master. `handlers` is changed in place."""

    parts: BrokerContext
    handlers: dict[int, Handler]
    dispatch: RequestDispatcher
    pulls: PullHandler
    sends: SendHandler
    commit: GroupCommit
    services: MasterServices


class RoleController:
    def __init__(
        self,
        dependent: RoleServices,
        config: ConfigFiles,
        now_ms: Callable[[], int],
        make: MakeReplication,
    ) -> None:
        self._of = dependent
        self._settings = settings = dependent.parts.settings
        self._now_ms = now_ms
        self._registration: Registration | None = None
        self._stand_in: ProxyRegistration | None = None
        self._table_log: MetadataChangeLog | None = None  # of a member of an elected group
        self.replication = replication = make(
            ReplicationHost(
                dependent.parts,
                dependent.commit,
                config,
                now_ms,
                lead=self._lead,
                follow=self._follow,
                serve=lambda conn, request: dependent.dispatch.received(conn, [request]),
                pause=self._pause,
                stand_in=lambda wanted: self._stand_in.set(wanted) if self._stand_in is not None else None,
            )
        )
        handlers = dependent.handlers
        handlers[RequestCode.GET_BROKER_HA_STATUS] = _status_of(replication)
        if settings.enable_d_leger_commit_log:
            self._table_log = MetadataChangeLog(dependent.parts, lambda: not settings.is_slave, now_ms)
            handlers.update(self._table_log.answering_when_stored(handlers))
        self._master_handlers = dict(handlers)
        if settings.is_slave:
            self._be_slave(slave_requests.NO_SENDS)

    def register_with(self, registration: Registration, register_stand_in: Callable[[Identity, Topics], Registration]) -> None:
        """Name servers hear of changes through this; a stand-in gets a registration of its own."""
        self._registration = registration
        settings = self._settings
        if settings.enable_d_leger_commit_log and settings.stand_in_enable:
            self._stand_in = ProxyRegistration(registration.identity, settings.peers().me, registration.topics, register_stand_in)
            self._of.parts.topics.listeners.append(self._stand_in.topic_changed)

    async def stop(self) -> None:
        if self._stand_in is not None:
            await self._stand_in.stop()

    def abandon(self) -> None:
        if self._stand_in is not None:
            self._stand_in.abandon()

    def _lead(self, term: int) -> None:
        """This broker is the master of its group from now on."""
        of, settings, now = self._of, self._settings, self._now_ms()
        assert self._table_log is not None
        assert self._registration is not None
        of.handlers.update(self._master_handlers)
        of.pulls.master_alive = None
        of.sends.forget_all()
        self._table_log.apply()
        of.services.take_up(now)
        of.parts.topics.begin_term(term, now)
        of.parts.groups.begin_term(term, now)
        settings.broker_role, settings.broker_id = "SYNC_MASTER", 0
        of.dispatch.take_sends()
        self._registration.become(0)

    def _pause(self, paused: bool) -> None:
        """Another member is about to take over, or did not in the end."""
        if paused:
            self._of.dispatch.stop_sends("another member of the group takes over", self.replication.pass_on)
        else:
            self._of.dispatch.take_sends()

    def _follow(self, why: str) -> None:
        """It is no longer."""
        settings = self._settings
        assert self._registration is not None
        settings.broker_role, settings.broker_id = "SLAVE", settings.peers().own_broker_id
        self._of.commit.fail_pending(why)
        self._be_slave(why)
        self._registration.become(settings.broker_id)
        self._of.services.lay_down()

    def _be_slave(self, why_no_sends: str) -> None:
        of, replication = self._of, self.replication
        pass_on = replication.pass_on
        of.handlers.update(slave_requests.handlers() if pass_on is None else slave_requests.passed_on(pass_on))
        of.dispatch.stop_sends(why_no_sends, pass_on)
        of.pulls.master_alive = lambda: replication.master_alive


def _status_of(replication: Replication) -> Handler:
    def status(conn: Connection, request: Command, now_ms: int) -> bytes:
        return json_answer(request, replication.status())

    return status
