"""JSON bodies of requests and responses, and the exception that rejects a request.

Two kinds of map are not JSON in the bodies that Apache RocketMQ's tools expect. A map with message queues as keys has the bare
objects as keys. A map with integer keys has them without quotes, for clients before 4.9.4; later ones read quotes, and newer
JSON libraries insist on them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sized
from typing import Any, TypeVar

from firearrow.wire import fastjson
from firearrow.wire.body_schema import Body
from firearrow.wire.codes import ResponseCode, code_name
from firearrow.wire.frame import Command, ExtValue, encode_response

STANDARD_JSON_VERSION = 401  # 4.9.4
MAX_BODY_BYTES = 1024 * 1024  # of a JSON body: thousands of subscriptions or topics
MAX_LIST = 1_000  # topics or groups that one request creates; each costs about 100 us
MAX_BODY_ELEMENTS = 50_000  # decoding one costs about 1 us

T = TypeVar("T")


class Refused(Exception):  # noqa: N818 - it is the answer itself, not a failure of ours
    """Rejects a request because of an error of the peer.

    The dispatcher turns it into a response with this code and remark; the connection stays open. The remark, for people, says
    what is wrong, with the value, and what to do.
    """

    __slots__ = ("code", "ext", "remark")

    def __init__(self, code: int, remark: str, ext: Mapping[str, str | int | bool] | None = None) -> None:
        super().__init__(f"{int(code)}: {remark}")
        self.code = int(code)
        self.remark = remark
        self.ext = ext


def json_answer(
    request: Command, value: Body | dict[str, Any], remark: str | None = None, ext: Mapping[str, ExtValue] | None = None
) -> bytes:
    """Encode a success response with a JSON body in the dialect of the requesting client."""
    plain = value.to_json() if isinstance(value, Body) else value
    body = fastjson.dumps(plain, bare_int_keys=request.version < STANDARD_JSON_VERSION)
    return encode_response(request, ResponseCode.SUCCESS, remark, ext, body)


def done(request: Command) -> bytes:
    """Encode a success response without a body."""
    return encode_response(request, ResponseCode.SUCCESS)


def read_body(request: Command, from_json: Callable[[dict[str, Any]], T]) -> T:
    """Return the request's body as one of the types of wire/bodies. Raises Refused if it is too large or cannot be decoded."""
    if len(request.body) > MAX_BODY_BYTES:
        raise _invalid_body(request, f"has {len(request.body)} bytes; {MAX_BODY_BYTES} is the maximum, use several requests")
    elements = request.body.count(b",") + 1  # of all lists and maps, or a few more
    if elements > MAX_BODY_ELEMENTS:
        raise _invalid_body(request, f"has {elements} elements; {MAX_BODY_ELEMENTS} is the maximum, use several requests")
    try:
        value = fastjson.loads(request.body, max_tolerant_bytes=fastjson.MAX_TOLERANT_REQUEST)
    except ValueError as error:
        raise _invalid_body(request, f"is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise _invalid_body(request, "is not a JSON object")
    try:
        return from_json(value)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise _invalid_body(request, f"cannot be decoded: {error}") from None


def check_list(wanted: Sized, what: str) -> None:
    """Reject a request that creates or changes too many entries at once."""
    if len(wanted) > MAX_LIST:
        raise Refused(
            ResponseCode.INVALID_PARAMETER,
            f"the request names {len(wanted)} {what}; {MAX_LIST} is the maximum, use several requests",
        )


def _invalid_body(request: Command, problem: str) -> Refused:
    return Refused(ResponseCode.INVALID_PARAMETER, f"the body of {code_name(request.code)} {problem}")
