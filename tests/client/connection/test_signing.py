from __future__ import annotations

import hashlib
import hmac
from base64 import b64encode
from typing import Any

from firearrow.aio import Producer
from firearrow.client.connection.signing import Signer
from firearrow.client.message import Message
from firearrow.client.options import Credentials
from firearrow.wire.frame import Command
from tests.client.fake_broker import FakeBroker
from tests.support.waiting import run


def expected_signature(ext: dict[str, Any], body: bytes, secret: str) -> str:
    """As a server computes it: all values but the signature, by key, then the body."""
    content = "".join(ext[key] for key in sorted(ext) if key != "Signature").encode() + body
    return b64encode(hmac.new(secret.encode(), content, hashlib.sha1).digest()).decode()


def test_the_signature_covers_values_in_the_order_of_their_keys_and_the_body() -> None:
    signed = Signer(Credentials("AK", "secret", "TOK")).signed(
        {"z": "topic", "b": 1, "a": "group", "m": True, "n": None}, b"BODY"
    )
    # printf 'AKTOKgroup1truetopicBODY' | openssl dgst -sha1 -hmac secret -binary | base64
    assert signed == {
        "z": "topic", "b": "1", "a": "group", "m": "true", "AccessKey": "AK", "SecurityToken": "TOK",
        "Signature": "JHdpsiTeEqLMyzabTCIygHctwok=",
    }  # fmt: skip


def test_every_request_of_a_client_is_signed() -> None:
    def check(command: Command, token: str | None) -> None:
        assert command.ext["AccessKey"] == "AK"
        assert command.ext.get("SecurityToken") == token
        assert command.ext["Signature"] == expected_signature(command.ext, command.body, "séc%ret"), command

    async def story(token: str | None) -> None:
        broker = await FakeBroker("br%d").start()
        async with Producer(broker.address, group="g%s", credentials=Credentials("AK", "séc%ret", token)) as producer:
            message = Message("T%d", b"x" * 5000, tags="ä", keys=["k%b"], properties={"quoted": '"\\ \n'})
            await producer.send(message, sharding_key="s%")
            await producer.send_batch([message, message])
            await producer.send_oneway(message)
            await broker.until(lambda: len(broker.sends) == 3)
        assert {105, 34, 310, 320, 35} <= set(broker.codes)
        for command in broker.seen:
            check(command, token)
        await broker.stop()

    run(story(None))
    run(story("session"))


def test_secrets_are_not_shown() -> None:
    assert "hidden" not in repr(Credentials("AK", "hidden", "hidden-token"))
