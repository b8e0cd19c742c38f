"""Reading the JSON body of a request: a value of the right kind, or a refusal that says what is wrong with it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from firearrow.broker.requests.refused import Refused
from firearrow.wire import fastjson
from firearrow.wire.codes import RequestCode, ResponseCode
from firearrow.wire.frame import Command

T = TypeVar("T")


def read_object(request: Command) -> dict[str, Any]:
    try:
        value = fastjson.loads(request.body)
    except ValueError as error:
        raise _refused(request, f"is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise _refused(request, "is not a JSON object")
    return value


def read_body(request: Command, from_json: Callable[[dict[str, Any]], T]) -> T:
    """The body as one of the value types of wire/bodies.py."""
    value = read_object(request)
    try:
        return from_json(value)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise _refused(request, f"is not understood: {error}") from None


def _refused(request: Command, what: str) -> Refused:
    try:
        name = RequestCode(request.code).name
    except ValueError:
        name = str(request.code)
    return Refused(ResponseCode.INVALID_PARAMETER, f"the body of {name} {what}")
