"""Access control of the name server: the permissions that its requests need, and the owners of broker names.

Routes and lists need a valid signature only. Requests that concern one cluster need a permission for it; requests that concern
the name server need one for all clusters (`Cluster:*`).

A broker name belongs to the user that registered it, as long as a broker is registered under it. Only this user and Super users
may register the name or its addresses again, or unregister them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from firearrow.auth.gate import Caller, Rule
from firearrow.auth.policies import CLUSTER, GET, UPDATE, Need
from firearrow.auth.principal import Needs
from firearrow.namesrv.route_table import RouteTable
from firearrow.wire.codes import RequestCode as Code
from firearrow.wire.frame import Command
from firearrow.wire.headers import namesrv as headers

ALL_CLUSTERS: Final = "*"

_SIGNATURE_ONLY: Final = (
    Code.GET_ROUTEINFO_BY_TOPIC, Code.GET_BROKER_CLUSTER_INFO, Code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER,
    Code.GET_TOPICS_BY_CLUSTER, Code.GET_SYSTEM_TOPIC_LIST_FROM_NS, Code.GET_UNIT_TOPIC_LIST, Code.GET_HAS_UNIT_SUB_TOPIC_LIST,
    Code.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST, Code.GET_BROKER_MEMBER_GROUP,
)  # fmt: skip
_UPDATES: Final = (
    Code.PUT_KV_CONFIG, Code.DELETE_KV_CONFIG, Code.REGISTER_TOPIC_IN_NAMESRV, Code.WIPE_WRITE_PERM_OF_BROKER,
    Code.ADD_WRITE_PERM_OF_BROKER, Code.UPDATE_NAMESRV_CONFIG,
    Code.AUTH_CREATE_USER, Code.AUTH_UPDATE_USER, Code.AUTH_DELETE_USER,
    Code.AUTH_CREATE_ACL, Code.AUTH_UPDATE_ACL, Code.AUTH_DELETE_ACL,
)  # fmt: skip
_READS: Final = (
    Code.GET_KV_CONFIG, Code.GET_KVLIST_BY_NAMESPACE, Code.GET_NAMESRV_CONFIG,
    Code.AUTH_GET_USER, Code.AUTH_LIST_USER, Code.AUTH_GET_ACL, Code.AUTH_LIST_ACL,
)  # fmt: skip


def namesrv_rules() -> dict[int, Rule]:
    reading, changing = (Need(CLUSTER, ALL_CLUSTERS, GET),), (Need(CLUSTER, ALL_CLUSTERS, UPDATE),)
    table: dict[int, Rule] = {int(code): lambda request: () for code in _SIGNATURE_ONLY}
    table |= {int(code): lambda request: changing for code in _UPDATES}
    table |= {int(code): lambda request: reading for code in _READS}
    return table | {
        Code.REGISTER_BROKER: _of_cluster(lambda r: headers.RegisterBrokerRequestHeader.decode(r.ext).cluster_name),
        Code.UNREGISTER_BROKER: _of_cluster(lambda r: headers.UnRegisterBrokerRequestHeader.decode(r.ext).cluster_name),
        Code.BROKER_HEARTBEAT: _of_cluster(lambda r: headers.BrokerHeartbeatRequestHeader.decode(r.ext).cluster_name),
        Code.QUERY_DATA_VERSION: _of_cluster(lambda r: headers.QueryDataVersionRequestHeader.decode(r.ext).cluster_name),
        Code.DELETE_TOPIC_IN_NAMESRV: _of_cluster(
            lambda r: headers.DeleteTopicFromNamesrvRequestHeader.decode(r.ext).cluster_name or ALL_CLUSTERS
        ),
    }


def _of_cluster(cluster: Callable[[Command], str]) -> Rule:
    def rule(request: Command) -> Needs:
        return (Need(CLUSTER, cluster(request), UPDATE),)

    return rule


class BrokerOwners:
    """The users that registered the broker names in a route table."""

    def __init__(self, routes: RouteTable) -> None:
        self._routes = routes
        self._owners: dict[str, str] = {}

    def foreign_name(self, caller: Caller, cluster: str, broker_name: str, address: str) -> str | None:
        """Return the name, of the broker or of the one at its address, that belongs to another user."""
        if not self._routes.has_broker(broker_name):
            self._owners.pop(broker_name, None)
        if caller.is_super:
            return None
        for name in (broker_name, self._routes.broker_at(cluster, address)):
            if name is not None and self._routes.has_broker(name) and self._owners.get(name, caller.name) != caller.name:
                return name
        return None

    def registered(self, caller: Caller, broker_name: str) -> None:
        """Remember who registered a name first. Names without a broker are free."""
        if len(self._owners) > 2 * self._routes.broker_count:
            self._owners = {name: user for name, user in self._owners.items() if self._routes.has_broker(name)}
        self._owners.setdefault(broker_name, caller.name)
