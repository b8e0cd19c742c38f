"""Headers by request code, for tests that iterate over all of them."""

from __future__ import annotations

from types import ModuleType
from typing import Final

from firearrow.wire.codes import RequestCode as Code
from firearrow.wire.header_schema import Header
from firearrow.wire.headers import admin, auth, client, namesrv


def _request_headers(*modules: ModuleType) -> dict[int, type[Header]]:
    members = [member for module in modules for member in vars(module).values()]
    classes = [member for member in members if isinstance(member, type) and issubclass(member, Header)]
    return {int(found.CODE): found for found in classes if found.CODE is not None}


REQUEST_HEADERS: Final[dict[int, type[Header]]] = _request_headers(client, admin, auth, namesrv)

RESPONSE_HEADERS: Final[dict[int, type[Header]]] = {
    Code.PULL_MESSAGE: client.PullMessageResponseHeader,
    Code.LITE_PULL_MESSAGE: client.PullMessageResponseHeader,
    Code.QUERY_CONSUMER_OFFSET: client.QueryConsumerOffsetResponseHeader,
    Code.SEARCH_OFFSET_BY_TIMESTAMP: client.SearchOffsetResponseHeader,
    Code.GET_MAX_OFFSET: client.GetMaxOffsetResponseHeader,
    Code.GET_MIN_OFFSET: client.GetMinOffsetResponseHeader,
    Code.GET_KV_CONFIG: namesrv.GetKVConfigResponseHeader,
    Code.REGISTER_BROKER: namesrv.RegisterBrokerResponseHeader,
    Code.WIPE_WRITE_PERM_OF_BROKER: namesrv.WipeWritePermOfBrokerResponseHeader,
    Code.QUERY_DATA_VERSION: namesrv.QueryDataVersionResponseHeader,
    Code.ADD_WRITE_PERM_OF_BROKER: namesrv.AddWritePermOfBrokerResponseHeader,
}
