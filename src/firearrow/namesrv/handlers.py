"""Request handlers of the name server, by request code.

A handler returns the header and the body of a successful response and raises `Refusal` for another one. An invalid header is
answered with INVALID_PARAMETER and the name of the field, an unknown code with REQUEST_CODE_NOT_SUPPORTED, an internal error with
SYSTEM_ERROR. The connection stays open. One-way requests are processed and never answered.

Integer keys of JSON maps: a requester from version 4.9.4 on, or one that asks for standard JSON, gets them quoted in routes;
older ones get Apache's bare keys, the only form that some of them can parse. Cluster info always has bare keys, as in Apache.
"""

from __future__ import annotations

import json
import logging
import re
import zlib
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from firearrow.auth.administration import AuthAdministration, AuthRefusal
from firearrow.auth.gate import AUTH_CODES, caller_of
from firearrow.auth.table import AuthTable
from firearrow.config.fields import SettingError, as_properties, change
from firearrow.config.properties_file import format_properties, parse_properties
from firearrow.namesrv.access import BrokerOwners
from firearrow.namesrv.kv_config import ORDER_TOPIC_CONFIG, KvConfig
from firearrow.namesrv.route_table import (
    TOPIC_SYS_FLAG_UNIT,
    TOPIC_SYS_FLAG_UNIT_SUB,
    BrokerRegistration,
    RouteTable,
    RouteTableFullError,
)
from firearrow.namesrv.settings import NamesrvSettings
from firearrow.net.connection import LARGE_RESPONSE
from firearrow.net.slow_requests import SLICE_MS, SlowRequestLog
from firearrow.wire import fastjson
from firearrow.wire.bodies.registration import RegisterBrokerBody
from firearrow.wire.bodies.route import (
    BrokerMemberGroup,
    GetBrokerMemberGroupResponseBody,
    KVTable,
    TopicList,
    TopicRouteData,
)
from firearrow.wire.bodies.topic import DataVersion
from firearrow.wire.body_schema import Body
from firearrow.wire.codes import VERSION_4_9_4, RequestCode, ResponseCode, not_supported
from firearrow.wire.errors import HeaderError, ProtocolError
from firearrow.wire.frame import Command, encode_response
from firearrow.wire.header_schema import Header
from firearrow.wire.headers import namesrv as headers

if TYPE_CHECKING:
    from firearrow.net.connection import LARGE_RESPONSE, Connection

BLACK_LIST = frozenset(("configBlackList", "configStorePath", "kvConfigPath", "rocketmqHome"))
_CRC_MASK = 0x7FFFFFFF
_MAX_CONFIG_BYTES = 65_536
_MAX_ROUTE_BYTES = 65_536  # of a topic's queues, one for each broker

log = logging.getLogger("firearrow.namesrv")


class Refusal(Exception):  # noqa: N818 (a response, not a fault)
    """Ends a handler with an error response."""

    def __init__(self, code: ResponseCode, remark: str, ext: dict[str, str] | None = None) -> None:
        super().__init__(remark)
        self.code = code
        self.remark = remark
        self.ext = ext


# (returns the table, called when it is on disk or has failed)
SaveKvConfig = Callable[[Callable[[], dict[str, Any]], Callable[[Exception | None], None]], None]

Answer = tuple[Header | None, bytes]
DONE: Answer = (None, b"")
Handler = Callable[["NamesrvService", "Connection", Command], Answer]


class NamesrvService:
    def __init__(
        self,
        settings: NamesrvSettings,
        *,
        now_ms: Callable[[], int],
        kv_config: KvConfig | None = None,
        save_kv_config: SaveKvConfig = lambda table, done: done(None),
        port: Callable[[], int] | None = None,
        auth: AuthTable | None = None,
    ) -> None:
        self.settings = settings
        self._port = port or (lambda: settings.listen_port)
        self.routes = RouteTable()
        self._owners = BrokerOwners(self.routes)
        self._auth_operations = AuthAdministration(auth).operations()
        self.kv_config = kv_config or KvConfig()
        self._save_kv_config = save_kv_config
        self._kv_config_changed = False  # by the current request
        self._now_ms = now_ms
        self._slow_requests = SlowRequestLog(log)
        self._ready_at_ms = now_ms() + settings.wait_seconds_for_service * 1000 if settings.need_wait_for_service else 0
        self._settings_changed()

    # ---- the Service interface of the listener

    def connected(self, conn: Connection) -> None:
        pass

    def received(self, conn: Connection, commands: list[Command]) -> list[Command] | None:
        answers: list[bytes] = []
        size = 0
        left: list[Command] | None = None
        started_ms = self._now_ms()
        rest = iter(commands)
        for request in rest:
            answer = self.answer(conn, request)
            if self._kv_config_changed:
                self._kv_config_changed = False
                self._save_kv_config(self.kv_config.to_json, partial(_write_saved, conn, request, answer))
            elif not request.is_oneway:
                answers.append(answer)
                size += len(answer)
            ended_ms = self._now_ms()
            if ended_ms - started_ms >= SLICE_MS:  # let other connections have a turn
                self._slow_requests.served(conn, request, ended_ms - started_ms, ended_ms)
                left = list(rest)
            elif size > LARGE_RESPONSE:
                conn.write(b"".join(answers))
                conn.note_response(size)
                answers, size = [], 0
                if conn.must_wait:  # peers do not read: the next answer would only wait in memory
                    left = list(rest)
        if answers:
            conn.write(b"".join(answers))
        self._send_notices()
        return left

    def disconnected(self, conn: Connection) -> None:
        for address in self.routes.channel_closed(conn):
            log.info("broker %s removed: its connection was closed", address)
        self._send_notices()

    def tick(self) -> None:
        """Remove brokers whose heartbeat timed out."""
        for address, channel in self.routes.expire(self._now_ms()):
            log.warning("broker %s removed: its registration timed out", address)
            channel.close("its broker did not register again in time")
        self._send_notices()

    def answer(self, conn: Connection, request: Command) -> bytes:
        handler = HANDLERS.get(request.code)
        if handler is None:
            return encode_response(request, ResponseCode.REQUEST_CODE_NOT_SUPPORTED, not_supported(request.code))
        try:
            header, body = handler(self, conn, request)
            return encode_response(request, ResponseCode.SUCCESS, ext=None if header is None else header.encode(), body=body)
        except Refusal as refusal:
            return encode_response(request, refusal.code, refusal.remark, refusal.ext)
        except HeaderError as error:
            return encode_response(request, ResponseCode.INVALID_PARAMETER, str(error))
        except ProtocolError as error:
            return encode_response(request, ResponseCode.SYSTEM_ERROR, f"the body cannot be read: {error}")
        except Exception as error:
            log.exception("request %d failed", request.code)
            return encode_response(request, ResponseCode.SYSTEM_ERROR, f"{type(error).__name__}: {error}")

    # ---- brokers

    def register_broker(self, conn: Connection, request: Command) -> Answer:
        header = headers.RegisterBrokerRequestHeader.decode(request.ext)
        if header.body_crc32 and zlib.crc32(request.body) & _CRC_MASK != header.body_crc32:
            raise Refusal(ResponseCode.SYSTEM_ERROR, "crc32 not match")
        body = RegisterBrokerBody.decode(
            request.body,
            compressed=header.compressed,
            version=request.version,
            max_topics=self.settings.max_topics_per_registration,
        )
        registration = BrokerRegistration(
            cluster=header.cluster_name,
            broker_name=header.broker_name,
            broker_id=header.broker_id,
            address=header.broker_addr,
            ha_address=header.ha_server_addr or "",
            data_version=body.data_version,
            topics=body.topic_config_table,
            filter_servers=body.filter_server_list,
            timeout_ms=header.heartbeat_timeout_millis,
            enable_acting_master=header.enable_acting_master,
            zone_name=header.zone_name,
        )
        self._check_owner(request, registration.cluster, registration.broker_name, registration.address)
        try:
            registered = self.routes.register(registration, conn, self._now_ms())
        except RouteTableFullError as error:
            raise Refusal(ResponseCode.SYSTEM_ERROR, f"register broker failed: {error}") from None
        if registered is None:
            raise Refusal(
                ResponseCode.SYSTEM_ERROR,
                f"register broker failed: {registration.broker_name} with id {registration.broker_id} is not known yet and named"
                " a single topic; it has to register with all its topics first",
            )
        caller = caller_of(request)
        if caller is not None:
            self._owners.registered(caller, registration.broker_name)
        log.debug("broker %s (%s, id %d) registered", registration.address, registration.broker_name, registration.broker_id)
        order = self.kv_config.namespace(ORDER_TOPIC_CONFIG) if self.settings.return_order_topic_config_to_broker else None
        return registered, _json(KVTable(table=order)) if order else b""

    def unregister_broker(self, conn: Connection, request: Command) -> Answer:
        header = headers.UnRegisterBrokerRequestHeader.decode(request.ext)
        self._check_owner(request, header.cluster_name, header.broker_name, header.broker_addr)
        self.routes.unregister(header.cluster_name, header.broker_name, header.broker_addr, conn)
        log.info("broker %s (%s) unregistered", header.broker_addr, header.broker_name)
        return DONE

    def broker_heartbeat(self, conn: Connection, request: Command) -> Answer:
        header = headers.BrokerHeartbeatRequestHeader.decode(request.ext)
        self._check_owner(request, header.cluster_name, header.broker_name, header.broker_addr)
        self.routes.heartbeat(header.cluster_name, header.broker_addr, self._now_ms())
        return DONE

    def query_data_version(self, conn: Connection, request: Command) -> Answer:
        header = headers.QueryDataVersionRequestHeader.decode(request.ext)
        self._check_owner(request, header.cluster_name, header.broker_name, header.broker_addr)
        registration = DataVersion.from_json(_request_json(request))
        kept = self.routes.data_version(header.cluster_name, header.broker_addr)
        self.routes.heartbeat(header.cluster_name, header.broker_addr, self._now_ms())
        answer = headers.QueryDataVersionResponseHeader(changed=kept != registration)
        return answer, b"" if kept is None else _json(kept)

    def get_broker_member_group(self, conn: Connection, request: Command) -> Answer:
        header = headers.GetBrokerMemberGroupRequestHeader.decode(request.ext)
        members = self.routes.member_addresses(header.cluster_name, header.broker_name)
        group = GetBrokerMemberGroupResponseBody(BrokerMemberGroup(header.cluster_name, header.broker_name, members))
        return None, _json(group, bare_int_keys=True)

    # ---- routes and lists

    def get_route(self, conn: Connection, request: Command) -> Answer:
        header = headers.GetRouteInfoRequestHeader.decode(request.ext)
        if self._ready_at_ms and self._now_ms() < self._ready_at_ms:
            raise Refusal(ResponseCode.SYSTEM_ERROR, "name server not ready: waiting for brokers to register")
        route = self.routes.route(header.topic)
        if route is None:
            raise Refusal(ResponseCode.TOPIC_NOT_EXIST, f"No topic route info in name server for the topic: {header.topic}")
        if self.settings.order_message_enable:
            route.order_topic_conf = self.kv_config.get(ORDER_TOPIC_CONFIG, header.topic)
        standard = request.version >= VERSION_4_9_4 or header.accept_standard_json_only
        return None, _ascii_json(_json(route)) if standard else _json(route, bare_int_keys=True)

    def get_cluster_info(self, conn: Connection, request: Command) -> Answer:
        return None, _json(self.routes.cluster_info(), bare_int_keys=True)

    def get_all_topics(self, conn: Connection, request: Command) -> Answer:
        return self._topic_list(self.settings.enable_all_topic_list, self.routes.topics)

    def get_topics_by_cluster(self, conn: Connection, request: Command) -> Answer:
        cluster = headers.GetTopicsByClusterRequestHeader.decode(request.ext).cluster
        return self._topic_list(self.settings.enable_topic_list, lambda: self.routes.topics_of_cluster(cluster))

    def get_system_topics(self, conn: Connection, request: Command) -> Answer:
        return self._topic_list(self.settings.enable_topic_list, self.routes.system_topics)

    def get_unit_topics(self, conn: Connection, request: Command) -> Answer:
        return self._topics_by_flag(lambda flag: bool(flag & TOPIC_SYS_FLAG_UNIT))

    def get_has_unit_sub_topics(self, conn: Connection, request: Command) -> Answer:
        return self._topics_by_flag(lambda flag: bool(flag & TOPIC_SYS_FLAG_UNIT_SUB))

    def get_has_unit_sub_ununit_topics(self, conn: Connection, request: Command) -> Answer:
        return self._topics_by_flag(lambda flag: flag & 3 == TOPIC_SYS_FLAG_UNIT_SUB)

    # ---- operators

    def wipe_write_perm(self, conn: Connection, request: Command) -> Answer:
        header = headers.WipeWritePermOfBrokerRequestHeader.decode(request.ext)
        count = self.routes.wipe_write_permission(header.broker_name)
        log.info("write permission of broker %s wiped from %d topics", header.broker_name, count)
        return headers.WipeWritePermOfBrokerResponseHeader(wipe_topic_count=count), b""

    def add_write_perm(self, conn: Connection, request: Command) -> Answer:
        header = headers.AddWritePermOfBrokerRequestHeader.decode(request.ext)
        count = self.routes.add_write_permission(header.broker_name)
        log.info("write permission of broker %s added to %d topics", header.broker_name, count)
        return headers.AddWritePermOfBrokerResponseHeader(add_topic_count=count), b""

    def delete_topic(self, conn: Connection, request: Command) -> Answer:
        header = headers.DeleteTopicFromNamesrvRequestHeader.decode(request.ext)
        self.routes.delete_topic(header.topic, header.cluster_name)
        return DONE

    def register_topic(self, conn: Connection, request: Command) -> Answer:
        header = headers.RegisterTopicRequestHeader.decode(request.ext)
        if request.body:
            self.routes.register_topic(header.topic, TopicRouteData.from_json(_request_json(request)).queue_datas)
        return DONE

    def put_kv_config(self, conn: Connection, request: Command) -> Answer:
        header = headers.PutKVConfigRequestHeader.decode(request.ext)
        size = self.kv_config.size + len(header.namespace) + len(header.key) + len(header.value)
        if size > self.settings.max_kv_config_size:
            raise Refusal(
                ResponseCode.SYSTEM_ERROR,
                f"the key-value configuration would have {size} characters, maxKvConfigSize is "
                f"{self.settings.max_kv_config_size}; delete keys that are not used",
            )
        self.kv_config.put(header.namespace, header.key, header.value)
        self._kv_config_changed = True
        return DONE

    def get_kv_config(self, conn: Connection, request: Command) -> Answer:
        header = headers.GetKVConfigRequestHeader.decode(request.ext)
        value = self.kv_config.get(header.namespace, header.key)
        if value is None:
            remark = f"No config item, Namespace: {header.namespace} Key: {header.key}"
            raise Refusal(ResponseCode.QUERY_NOT_FOUND, remark, ext={})
        return headers.GetKVConfigResponseHeader(value=value), b""

    def delete_kv_config(self, conn: Connection, request: Command) -> Answer:
        header = headers.DeleteKVConfigRequestHeader.decode(request.ext)
        if self.kv_config.delete(header.namespace, header.key):
            self._kv_config_changed = True
        return DONE

    def get_kv_list(self, conn: Connection, request: Command) -> Answer:
        header = headers.GetKVListByNamespaceRequestHeader.decode(request.ext)
        table = self.kv_config.namespace(header.namespace)
        if table is None:
            raise Refusal(ResponseCode.QUERY_NOT_FOUND, f"No config item, Namespace: {header.namespace}")
        return None, _json(KVTable(table=table))

    def update_config(self, conn: Connection, request: Command) -> Answer:
        """Change settings until the process ends. The configuration file is not written."""
        if len(request.body) > _MAX_CONFIG_BYTES:
            remark = f"the properties have {len(request.body)} bytes; expected at most {_MAX_CONFIG_BYTES}"
            raise Refusal(ResponseCode.INVALID_PARAMETER, remark)
        try:
            values = parse_properties(request.body.decode())
        except ValueError as error:
            raise Refusal(ResponseCode.SYSTEM_ERROR, f"the properties cannot be read: {error}") from error
        if not BLACK_LIST.isdisjoint(values):
            raise Refusal(ResponseCode.NO_PERMISSION, "Can not update config in black list.")
        try:
            change([self.settings], values)
        except SettingError as error:
            raise Refusal(ResponseCode.INVALID_PARAMETER, str(error)) from error
        self._settings_changed()
        log.info("settings changed: %s", values)
        return DONE

    def get_config(self, conn: Connection, request: Command) -> Answer:
        properties = as_properties([self.settings]) | {"listenPort": str(self._port())}
        return None, format_properties(properties).encode()

    def manage_users(self, conn: Connection, request: Command) -> Answer:
        try:
            answer = self._auth_operations[request.code](request)
        except AuthRefusal as refusal:
            raise Refusal(refusal.code, refusal.remark) from None
        return None, answer.body

    # ---- internal

    def _check_owner(self, request: Command, cluster: str, broker_name: str, address: str) -> None:
        """Refuse a broker name or address that belongs to another user."""
        caller = caller_of(request)
        foreign = None if caller is None else self._owners.foreign_name(caller, cluster, broker_name, address)
        if foreign is not None:
            raise Refusal(ResponseCode.NO_PERMISSION, f"the broker name {foreign} belongs to another user while it is registered")

    def _topics_by_flag(self, wanted: Callable[[int], bool]) -> Answer:
        return self._topic_list(self.settings.enable_topic_list, lambda: self.routes.topics_by_flag(wanted))

    @staticmethod
    def _topic_list(enabled: bool, topics: Callable[[], TopicList]) -> Answer:
        if not enabled:
            raise Refusal(ResponseCode.SYSTEM_ERROR, "topic lists are disabled (enableAllTopicList, enableTopicList)")
        return None, _json(topics())

    def _settings_changed(self) -> None:
        self.routes.max_routes = self.settings.max_routes
        self.routes.max_brokers = self.settings.max_brokers
        self.routes.support_acting_master = self.settings.support_acting_master
        self.routes.notify_min_broker_id_changed = self.settings.notify_min_broker_id_changed
        self.routes.delete_topic_with_broker_registration = self.settings.delete_topic_with_broker_registration

    def _send_notices(self) -> None:
        notices, self.routes.notices = self.routes.notices, []
        for channel, notice in notices:
            channel.notify(RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE, notice.encode())


HANDLERS: dict[int, Handler] = {
    RequestCode.PUT_KV_CONFIG: NamesrvService.put_kv_config,
    RequestCode.GET_KV_CONFIG: NamesrvService.get_kv_config,
    RequestCode.DELETE_KV_CONFIG: NamesrvService.delete_kv_config,
    RequestCode.REGISTER_BROKER: NamesrvService.register_broker,
    RequestCode.UNREGISTER_BROKER: NamesrvService.unregister_broker,
    RequestCode.GET_ROUTEINFO_BY_TOPIC: NamesrvService.get_route,
    RequestCode.GET_BROKER_CLUSTER_INFO: NamesrvService.get_cluster_info,
    RequestCode.WIPE_WRITE_PERM_OF_BROKER: NamesrvService.wipe_write_perm,
    RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: NamesrvService.get_all_topics,
    RequestCode.DELETE_TOPIC_IN_NAMESRV: NamesrvService.delete_topic,
    RequestCode.REGISTER_TOPIC_IN_NAMESRV: NamesrvService.register_topic,
    RequestCode.GET_KVLIST_BY_NAMESPACE: NamesrvService.get_kv_list,
    RequestCode.GET_TOPICS_BY_CLUSTER: NamesrvService.get_topics_by_cluster,
    RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS: NamesrvService.get_system_topics,
    RequestCode.GET_UNIT_TOPIC_LIST: NamesrvService.get_unit_topics,
    RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST: NamesrvService.get_has_unit_sub_topics,
    RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: NamesrvService.get_has_unit_sub_ununit_topics,
    RequestCode.UPDATE_NAMESRV_CONFIG: NamesrvService.update_config,
    RequestCode.GET_NAMESRV_CONFIG: NamesrvService.get_config,
    RequestCode.QUERY_DATA_VERSION: NamesrvService.query_data_version,
    RequestCode.ADD_WRITE_PERM_OF_BROKER: NamesrvService.add_write_perm,
    RequestCode.GET_BROKER_MEMBER_GROUP: NamesrvService.get_broker_member_group,
    RequestCode.BROKER_HEARTBEAT: NamesrvService.broker_heartbeat,
    **dict.fromkeys(AUTH_CODES, NamesrvService.manage_users),
}


def _write_saved(conn: Connection, request: Command, answer: bytes, error: Exception | None) -> None:
    """Write the response to a change of the key-value configuration, after it was saved or not."""
    if error is not None:
        log.error("the key-value configuration was not saved: %s", error)
        answer = encode_response(request, ResponseCode.SYSTEM_ERROR, f"{type(error).__name__}: {error}")
    if not request.is_oneway:
        conn.write(answer)


def _request_json(request: Command) -> Any:
    """Parse a body that is small in requests of brokers and tools."""
    if len(request.body) > _MAX_ROUTE_BYTES:
        raise ProtocolError(f"{len(request.body)} bytes, expected at most {_MAX_ROUTE_BYTES}")
    return fastjson.loads(request.body, max_tolerant_bytes=fastjson.MAX_TOLERANT_REQUEST)


def _json(body: Body, *, bare_int_keys: bool = False) -> bytes:
    return fastjson.dumps(body.to_json(), bare_int_keys=bare_int_keys)


def _ascii_json(body: bytes) -> bytes:
    """Escape all non-ASCII characters of a JSON text, as Apache's standard mode does."""
    return re.sub(r"[^\x00-\x7f]+", lambda found: json.dumps(found[0])[1:-1], body.decode()).encode()
