"""Message lookup by key, unique key and id (12, 33), and queue offsets by time and at the ends (29 to 32).

Messages are found by key through the index, whose keys are `topic#key`. The client compares the text, because two keys may have
the same hash code. A message id is the address of a broker and an offset in its log, so that lookup is one read. For 29 to 32 a
topic or queue that does not exist is empty, not an error.
"""

from __future__ import annotations

from firearrow.broker.context import BrokerContext, Handler
from firearrow.broker.requests.responses import Refused
from firearrow.net.server import Connection
from firearrow.wire.codes import RequestCode, ResponseCode
from firearrow.wire.frame import MAX_FRAME, Command, encode_response
from firearrow.wire.headers import client as headers

KEY_INDEX = "K"
TAG_INDEX = "T"
MAX_RESPONSE_BYTES = MAX_FRAME - 64 * 1024  # clients reject larger frames; the difference is for the header


def handlers(broker: BrokerContext) -> dict[int, Handler]:
    store = broker.store

    def query_message(conn: Connection, request: Command, now_ms: int) -> bytes:
        header = headers.QueryMessageRequestHeader.decode(request.ext)
        max_num = broker.settings.default_query_max_num if header.unique_key_query else header.max_num
        if max_num <= 0:
            raise Refused(ResponseCode.INVALID_PARAMETER, f"maxNum is {max_num}; expected 1 or more")
        kind = TAG_INDEX if header.index_type == TAG_INDEX else KEY_INDEX  # unique keys are indexed like keys
        found = store.query(header.topic, header.key, max_num, header.begin_timestamp, header.end_timestamp, kind)
        body = _join(found.records)
        if not body:
            ext = {"indexLastUpdatePhyoffset": 0, "indexLastUpdateTimestamp": 0}
            raise Refused(ResponseCode.QUERY_NOT_FOUND, "can not find message, maybe time range not correct", ext)
        ext = {"indexLastUpdatePhyoffset": found.index_last_offset, "indexLastUpdateTimestamp": found.index_last_update_ms}
        return encode_response(request, ResponseCode.SUCCESS, ext=ext, body=body)

    def view_message_by_id(conn: Connection, request: Command, now_ms: int) -> bytes:
        header = headers.ViewMessageRequestHeader.decode(request.ext)
        record = store.read_record(header.offset) if header.offset >= 0 else None
        if record is None:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"can not find message by the offset, {header.offset}")
        return encode_response(request, ResponseCode.SUCCESS, body=record)

    def search_offset_by_timestamp(conn: Connection, request: Command, now_ms: int) -> bytes:
        header = headers.SearchOffsetRequestHeader.decode(request.ext)
        queue = store.find_queue(header.topic, header.queue_id)
        upper = (header.boundary_type or "").upper() == "UPPER"
        offset = 0 if queue is None else store.reader.offset_by_time(queue, header.timestamp, upper=upper)
        return encode_response(request, ResponseCode.SUCCESS, ext={"offset": offset})

    def get_max_offset(conn: Connection, request: Command, now_ms: int) -> bytes:
        header = headers.GetMaxOffsetRequestHeader.decode(request.ext)
        queue = store.find_queue(header.topic, header.queue_id)
        return encode_response(request, ResponseCode.SUCCESS, ext={"offset": 0 if queue is None else queue.max_offset})

    def get_min_offset(conn: Connection, request: Command, now_ms: int) -> bytes:
        header = headers.GetMinOffsetRequestHeader.decode(request.ext)
        queue = store.find_queue(header.topic, header.queue_id)
        return encode_response(request, ResponseCode.SUCCESS, ext={"offset": 0 if queue is None else queue.min_offset})

    def get_earliest_msg_storetime(conn: Connection, request: Command, now_ms: int) -> bytes:
        header = headers.GetEarliestMsgStoretimeRequestHeader.decode(request.ext)
        queue = store.find_queue(header.topic, header.queue_id)
        earliest = None if queue is None else store.reader.earliest_store_time(queue)
        return encode_response(request, ResponseCode.SUCCESS, ext={"timestamp": -1 if earliest is None else earliest})

    return {
        RequestCode.QUERY_MESSAGE: query_message,
        RequestCode.VIEW_MESSAGE_BY_ID: view_message_by_id,
        RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: search_offset_by_timestamp,
        RequestCode.GET_MAX_OFFSET: get_max_offset,
        RequestCode.GET_MIN_OFFSET: get_min_offset,
        RequestCode.GET_EARLIEST_MSG_STORETIME: get_earliest_msg_storetime,
    }


def _join(records: list[bytes]) -> bytes:
    """Join as many records, in their order, as fit into one response."""
    size = 0
    for count, record in enumerate(records):
        size += len(record)
        if size > MAX_RESPONSE_BYTES:
            return b"".join(records[:count])
    return b"".join(records)
