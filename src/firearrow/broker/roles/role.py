"""The broker's role, and everything that changes with it.

A broker with a fixed role is set up once. A member of an elected group changes between master and slave while it runs. The two
roles differ in the table of handlers, in whether sends are accepted and in how pulls beyond the end of a queue are answered.

Requests that a slave rejects

    messages               CONSUMER_SEND_MSG_BACK, replies, recalls    14  SERVICE_NOT_AVAILABLE, as for sends
    END_TRANSACTION                                                    11  SLAVE_NOT_AVAILABLE
    topics, groups, modes, users, policies                             1   SYSTEM_ERROR

A follower of an elected group forwards them to its leader instead.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from firearrow.broker.context import BrokerContext, Handler
from firearrow.broker.pull.handler import PullHandler
from firearrow.broker.registration import Identity, Registration, Topics
from firearrow.broker.requests.dispatcher import RequestDispatcher
from firearrow.broker.requests.responses import Refused, json_answer
from firearrow.broker.roles.master_services import MasterServices
from firearrow.broker.roles.proxy_registration import ProxyRegistration
from firearrow.broker.roles.replication import Forward, MakeReplication, Replication, ReplicationHost
from firearrow.broker.send.group_commit import GroupCommit
from firearrow.broker.send.handler import SendHandler
from firearrow.broker.settings import BrokerSettings
from firearrow.broker.tables.change_log import ANSWERED_WHEN_STORED, MetadataChangeLog
from firearrow.broker.tables.persistence import ConfigFiles
from firearrow.net.connection import Connection, Service
from firearrow.wire.codes import RequestCode, ResponseCode
from firearrow.wire.frame import Command

NO_SENDS = "this broker is a slave and takes no messages; send to its master"
_STORING = (
    RequestCode.CONSUMER_SEND_MSG_BACK,
    RequestCode.SEND_REPLY_MESSAGE,
    RequestCode.SEND_REPLY_MESSAGE_V2,
    RequestCode.RECALL_MESSAGE,
)
_CHANGING = (*ANSWERED_WHEN_STORED, RequestCode.SET_MESSAGE_REQUEST_MODE)
# A slave serves these from its own tables. A follower forwards them: its leader's tables are newer.
_FORWARDED = (
    RequestCode.END_TRANSACTION,
    RequestCode.QUERY_CONSUMER_OFFSET,
    RequestCode.UPDATE_CONSUMER_OFFSET,
    RequestCode.LOCK_BATCH_MQ,
    RequestCode.UNLOCK_BATCH_MQ,
    RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
    RequestCode.CLONE_GROUP_OFFSET,
    RequestCode.RESUME_CHECK_HALF_MESSAGE,
    RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN,
)


class RoleState:
    """The broker's role and id. They are those of the settings, unless a group elects the master; then `change` follows it."""

    def __init__(self, settings: BrokerSettings) -> None:
        elected = settings.enable_d_leger_commit_log
        self.role = "SLAVE" if elected else settings.broker_role
        self.broker_id = settings.peers().own_broker_id if elected else settings.broker_id

    @property
    def is_slave(self) -> bool:
        return self.role == "SLAVE"

    def change(self, role: str, broker_id: int) -> None:
        self.role, self.broker_id = role, broker_id


@dataclass(frozen=True, slots=True)
class RoleServices:
    """The parts of the broker that depend on its role. `handlers` are those of a master."""

    context: BrokerContext
    handlers: dict[int, Handler]
    dispatcher: RequestDispatcher
    pulls: PullHandler
    sends: SendHandler
    commit: GroupCommit
    services: MasterServices
    registration: Registration
    service: Service  # the dispatcher, behind access control if that is on


class RoleController:
    """Switches the broker between its roles. `make_proxy` creates the proxy registration (proxy_registration.py)."""

    def __init__(
        self,
        parts: RoleServices,
        config: ConfigFiles,
        now_ms: Callable[[], int],
        make: MakeReplication,
        make_proxy: Callable[[Identity, Topics], Registration],
    ) -> None:
        self._context = parts
        self._now_ms = now_ms
        self._proxy: ProxyRegistration | None = None
        settings, role = parts.context.settings, parts.context.role
        self.replication = replication = make(
            ReplicationHost(
                parts.context,
                parts.commit,
                config,
                now_ms,
                lead=self._lead,
                follow=self._follow,
                serve=self._serve,
                set_proxy=self._set_proxy,
                pause=self._pause,
            )
        )
        if replication.ha_address is not None:
            parts.registration.advertise_ha(replication.ha_address)
        self._change_log: MetadataChangeLog | None = None
        self._master_handlers = parts.handlers | {int(RequestCode.GET_BROKER_HA_STATUS): _status_of(replication)}
        if settings.enable_d_leger_commit_log:
            self._change_log = MetadataChangeLog(parts.context, lambda: not role.is_slave, now_ms)
            self._master_handlers |= self._change_log.answering_when_stored(self._master_handlers)
            if settings.stand_in_enable:
                registration = parts.registration
                self._proxy = ProxyRegistration(registration.identity, settings.peers().me, registration.topics, make_proxy)
                parts.context.topics.subscribe(self._proxy.topic_changed)
        forward = replication.forward
        rejecting = _rejecting_handlers() if forward is None else _forwarding_handlers(forward)
        self._slave_handlers = self._master_handlers | rejecting
        self._forwarding = frozenset(rejecting) if forward is not None else frozenset()
        if role.is_slave:
            self._serve_as_slave(NO_SENDS)
        else:
            parts.dispatcher.use_handlers(self._master_handlers)

    async def stop(self) -> None:
        if self._proxy is not None:
            await self._proxy.stop()

    def abandon(self) -> None:
        if self._proxy is not None:
            self._proxy.abandon()

    def _lead(self, term: int) -> None:
        """Switch this broker to the master role."""
        parts, now = self._context, self._now_ms()
        assert self._change_log is not None, "only members of an elected group change their role"
        parts.dispatcher.use_handlers(self._master_handlers)
        parts.pulls.serve_as_master()
        parts.sends.invalidate_targets()
        self._change_log.apply()
        parts.services.activate(now)
        parts.context.topics.begin_term(term, now)
        parts.context.groups.begin_term(term, now)
        parts.context.role.change("SYNC_MASTER", 0)
        parts.dispatcher.accept_sends()
        parts.registration.become(0)

    def _follow(self, reason: str) -> None:
        """Switch this broker to the slave role."""
        parts, broker_id = self._context, self._context.context.settings.peers().own_broker_id
        parts.context.role.change("SLAVE", broker_id)
        parts.commit.fail_pending(reason)
        self._serve_as_slave(reason)
        parts.registration.become(broker_id)
        parts.services.deactivate()

    def _serve(self, conn: Connection, request: Command) -> None:
        self._context.service.received(conn, [request])

    def _pause(self, paused: bool) -> None:
        """Stop accepting sends while another member takes over, and accept them again if it did not."""
        if paused:
            self._context.dispatcher.reject_sends("another member of the group takes over", self.replication.forward)
        else:
            self._context.dispatcher.accept_sends()

    def _serve_as_slave(self, no_sends: str) -> None:
        replication = self.replication
        self._context.dispatcher.use_handlers(self._slave_handlers, self._forwarding)
        self._context.dispatcher.reject_sends(no_sends, replication.forward)
        self._context.pulls.serve_as_slave(lambda: replication.master_alive)

    def _set_proxy(self, wanted: bool) -> None:
        if self._proxy is not None:
            self._proxy.set(wanted)


def _status_of(replication: Replication) -> Handler:
    def status(conn: Connection, request: Command, now_ms: int) -> bytes:
        return json_answer(request, replication.status())

    return status


def _rejecting_handlers() -> dict[int, Handler]:
    """Return the handlers of a slave for requests that only a master serves."""
    changing = "this broker is a slave: topics, groups, modes and users are changed at its master, it copies them from there"
    table = {int(code): _rejecting(ResponseCode.SERVICE_NOT_AVAILABLE, NO_SENDS) for code in _STORING}
    table |= {int(code): _rejecting(ResponseCode.SYSTEM_ERROR, changing) for code in _CHANGING}
    ending = "this broker is a slave and ends no transactions; ask its master"
    return table | {int(RequestCode.END_TRANSACTION): _rejecting(ResponseCode.SLAVE_NOT_AVAILABLE, ending)}


def _forwarding_handlers(forward: Forward) -> dict[int, Handler]:
    """Return the handlers of a follower for requests that only the leader serves."""

    def handler(conn: Connection, request: Command, now_ms: int) -> None:
        forward(conn, request)

    return {int(code): handler for code in (*_STORING, *_CHANGING, *_FORWARDED)}


def _rejecting(code: ResponseCode, remark: str) -> Handler:
    def reject(conn: Connection, request: Command, now_ms: int) -> bytes:
        raise Refused(code, remark)

    return reject
