"""Signatures of requests, against the test vectors of other implementations."""

from __future__ import annotations

import hashlib
import hmac
from base64 import b64encode
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firearrow.wire.signature import RequestSigner, SecretKey

SECRET = "12345678"
SEND = {
    "a": "PG", "b": "T", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1700000000000", "h": "0", "i": "UNIQ_KEY\x01K1\x02",
    "j": "0", "k": "false", "l": "0", "m": "false", "n": "broker-a",
}  # fmt: skip
VECTORS = [
    ({}, None, b"", "wmnVRiuXwvgUxJ6oySLyc1qu7Z4="),
    ({"topic": "T"}, "tok", b"\x00\xff", "zkPKTLvTNcJE0ATFGkDVf0PTSVk="),
    (SEND, None, b"hello", "F2IZv0kVocbrzJBJKO2nu9WMVYk="),
]


def signed_content(content: bytes, secret: str = SECRET) -> str:
    return b64encode(hmac.new(secret.encode(), content, hashlib.sha1).digest()).decode()


@pytest.mark.parametrize(("ext", "token", "body", "signature"), VECTORS)
def test_vectors(ext: dict[str, str], token: str | None, body: bytes, signature: str) -> None:
    signed = RequestSigner("rocketmq", SECRET, token).signed(ext, body)
    assert signed["Signature"] == signature
    assert SecretKey(SECRET).is_signed(signed, body)
    assert not SecretKey(SECRET + "9").is_signed(signed, body)
    assert not SecretKey(SECRET).is_signed(signed, body + b"!")
    for key in signed:
        if key != "Signature":
            assert not SecretKey(SECRET).is_signed(signed | {key: signed[key] + "x"}, body)


@pytest.mark.parametrize("signature", [None, "", 7, "wmnVRiuXwvgUxJ6oySLyc1qu7Z5=", "\ud800", "ü"])
def test_missing_or_malformed_signature_is_refused(signature: Any) -> None:
    assert not SecretKey(SECRET).is_signed({"AccessKey": "rocketmq", "Signature": signature}, b"")
    assert not SecretKey(SECRET).is_signed({"AccessKey": "rocketmq"}, b"")
    assert not SecretKey("").is_signed({}, b"")


def test_numbers_and_booleans_count_as_text() -> None:
    ext = {"AccessKey": "rocketmq", "d": 4, "k": True, "m": False, "n": None}
    assert SecretKey(SECRET).is_signed(ext | {"Signature": signed_content(b"rocketmq4truefalsenull")}, b"")


def test_security_token_may_be_left_out_of_the_content() -> None:
    ext = {"AccessKey": "rocketmq", "SecurityToken": "tok", "topic": "T"}
    assert SecretKey(SECRET).is_signed(ext | {"Signature": signed_content(b"rocketmqT")}, b"")


def test_mark_of_unique_key_queries_may_be_left_out_of_the_content() -> None:
    ext = {"AccessKey": "rocketmq", "_UNIQUE_KEY_QUERY": "true", "topic": "T", "SecurityToken": "tok"}
    for content in (b"rocketmqtoktrueT", b"rocketmqtokT", b"rocketmqtrueT", b"rocketmqT"):
        assert SecretKey(SECRET).is_signed(ext | {"Signature": signed_content(content)}, b"")
    assert not SecretKey(SECRET).is_signed(ext | {"Signature": signed_content(b"rocketmqtoktrue")}, b"")


@given(st.text(min_size=1, max_size=100), st.dictionaries(st.text(max_size=9), st.text(max_size=9)), st.binary(max_size=99))
def test_signed_fields_are_accepted(secret: str, ext: dict[str, str], body: bytes) -> None:
    signed = RequestSigner("rocketmq", secret).signed(ext, body)
    assert SecretKey(secret).is_signed(signed, body)
    keys = sorted((key for key in signed if key != "Signature"), key=lambda key: key.encode("utf-16-be"))
    assert signed["Signature"] == signed_content("".join(signed[key] for key in keys).encode() + body, secret)
