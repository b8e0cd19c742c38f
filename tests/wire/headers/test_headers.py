"""Declared headers against captured conversations: every field that real peers send is declared and decoded."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from firearrow.wire.codes import RequestCode
from firearrow.wire.header_schema import COMMON_KEYS, Header
from tests.wire.captured import Captured, captured, sessions
from tests.wire.headers.registry import REQUEST_HEADERS, RESPONSE_HEADERS


def keys(cls: type[Header]) -> set[str]:
    return {key for spec in cls.FIELDS for key in (spec.key, spec.short, spec.other) if key}


def captured_with_headers(session: str) -> Iterator[tuple[Captured, type[Header]]]:
    """Yield every request, and the responses that are read or written with a header class."""
    for sent in captured():
        if sent.file == session and sent.kind != "response":
            yield sent, REQUEST_HEADERS.get(sent.request, Header)
        elif sent.file == session and sent.request in RESPONSE_HEADERS:
            yield sent, RESPONSE_HEADERS[sent.request]


@pytest.mark.parametrize("session", sessions())
def test_every_captured_field_is_declared(session: str) -> None:
    for sent, cls in captured_with_headers(session):
        assert set(sent.ext) <= keys(cls) | COMMON_KEYS, sent


@pytest.mark.parametrize("session", sessions())
def test_every_captured_header_round_trips(session: str) -> None:
    for sent, cls in captured_with_headers(session):
        if cls is Header or (sent.kind == "response" and sent.header["code"] != 0 and not sent.ext):
            continue  # a request without fields, or an error without a header
        header = cls.decode(sent.ext)
        again = header.encode()
        for key, value in sent.ext.items():
            if key in again and value != "":
                assert again[key].lower() == str(value).lower() or (again[key] == "false" and value == "0"), (sent, key)


def test_requests_with_fields_have_header_classes() -> None:
    clients = (10, 310, 320, 11, 361, 12, 33, 14, 15, 29, 30, 31, 32, 35, 36, 37, 38, 39, 40)
    admin = (
        17,
        21,
        201,
        202,
        203,
        204,
        207,
        208,
        215,
        220,
        221,
        222,
        223,
        300,
        303,
        307,
        308,
        309,
        314,
        315,
        317,
        321,
        343,
        345,
        351,
        352,
        353,
    )
    namesrv = (100, 101, 102, 103, 104, 105, 205, 216, 217, 219, 224, 322, 327, 901, 904)
    for code in (*clients, *admin, *namesrv):
        assert REQUEST_HEADERS[code].FIELDS, RequestCode(code).name
