"""Answering with JSON, in the dialect that the asking client reads.

Two kinds of map are not JSON in the bodies that Apache RocketMQ's tools expect. A map with message queues as keys has the bare
objects as keys. A map with integer keys has them without quotes, for clients before 4.9.4; later ones read quotes, and newer
JSON libraries insist on them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from firearrow.wire import fastjson
from firearrow.wire.body_schema import Body
from firearrow.wire.codes import ResponseCode
from firearrow.wire.frame import Command, ExtValue, encode_response

STANDARD_JSON_VERSION = 401  # 4.9.4


def json_answer(
    request: Command, value: Body | dict[str, Any], remark: str | None = None, ext: Mapping[str, ExtValue] | None = None
) -> bytes:
    plain = value.to_json() if isinstance(value, Body) else value
    body = fastjson.dumps(plain, bare_int_keys=request.version < STANDARD_JSON_VERSION)
    return encode_response(request, ResponseCode.SUCCESS, remark, ext, body)


def done(request: Command) -> bytes:
    return encode_response(request, ResponseCode.SUCCESS)
