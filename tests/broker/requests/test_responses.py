"""JSON bodies in the dialect of the client, and rejected bodies."""

from __future__ import annotations

from typing import Any

import pytest

from firearrow.broker.requests.responses import STANDARD_JSON_VERSION, Refused, done, json_answer, read_body
from firearrow.wire.codes import RequestCode, ResponseCode
from firearrow.wire.frame import Command, FrameDecoder


def decoded(data: bytes) -> Command:
    (command,) = FrameDecoder().feed(data)
    return command


@pytest.mark.parametrize(
    ("version", "body"), [(STANDARD_JSON_VERSION - 1, b'{"t":{0:5}}'), (STANDARD_JSON_VERSION, b'{"t":{"0":5}}')]
)
def test_integer_keys_are_bare_for_old_clients_only(version: int, body: bytes) -> None:
    answer = decoded(json_answer(Command(35, opaque=7, version=version), {"t": {0: 5}}, "fine", {"total": 1}))
    assert answer.body == body
    assert (answer.code, answer.opaque, answer.remark, answer.ext) == (ResponseCode.SUCCESS, 7, "fine", {"total": "1"})


def test_done_is_a_success_without_body() -> None:
    answer = decoded(done(Command(35, opaque=7)))
    assert (answer.is_response, answer.code, answer.opaque, answer.body) == (True, ResponseCode.SUCCESS, 7, b"")


def test_body_is_returned_as_its_type() -> None:
    request = Command(RequestCode.HEART_BEAT, body=b'{"clientID":"c"}')
    assert read_body(request, lambda value: value["clientID"].upper()) == "C"


def _wrong(value: dict[str, Any]) -> object:
    return value["missing"]


@pytest.mark.parametrize(
    ("code", "body", "says"),
    [
        (RequestCode.HEART_BEAT, b"{", "the body of HEART_BEAT is not JSON"),
        (RequestCode.HEART_BEAT, b"[1]", "the body of HEART_BEAT is not a JSON object"),
        (RequestCode.HEART_BEAT, b"{}", "the body of HEART_BEAT cannot be decoded: 'missing'"),
        (999_999, b"{", "the body of 999999 is not JSON"),
    ],
)
def test_invalid_body_is_rejected_with_the_name_of_the_request(code: int, body: bytes, says: str) -> None:
    with pytest.raises(Refused) as refused:
        read_body(Command(code, body=body), _wrong)
    assert refused.value.code == ResponseCode.INVALID_PARAMETER
    assert refused.value.remark.startswith(says)


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (b'{"a":"' + b"x" * 1024 * 1024 + b'"}', "bytes; 1048576 is the maximum"),
        (b"[" + b"{}," * 60_000 + b"{}]", "elements; 50000 is the maximum"),
        (b"{'a':[" + b"1," * 20_000 + b"]}", "too long for Apache's dialect"),
    ],
    ids=["long", "many elements", "long and not standard JSON"],
)
def test_body_that_takes_long_to_decode_is_rejected(body: bytes, problem: str) -> None:
    with pytest.raises(Refused, match=problem) as caught:
        read_body(Command(RequestCode.HEART_BEAT, body=body), lambda value: value)
    assert caught.value.code == ResponseCode.INVALID_PARAMETER
