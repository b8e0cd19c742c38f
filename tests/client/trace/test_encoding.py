from __future__ import annotations

from firearrow.client.hooks import MessageKind
from firearrow.client.trace.encoding import Outcome, contexts, encode


def test_a_message_that_was_sent() -> None:
    told = encode(
        "Pub", time_ms=1700000000123, region="DefaultRegion", group="g", topic="T", msg_id="ID", tags="new", keys="a b",
        address="127.0.0.1:10911", body_length=5, cost_ms=3, kind=MessageKind.DELAY, offset_msg_id="OFF", success=True,
    )  # fmt: skip

    assert told.text == (
        "Pub\x011700000000123\x01DefaultRegion\x01g\x01T\x01ID\x01new\x01a b\x01127.0.0.1:10911\x015\x013\x013\x01OFF\x01true\x02"
    )
    assert told.keys == ("ID", "a", "b")


def test_absent_values_are_null_and_separators_are_replaced() -> None:
    told = encode(
        "Pub", time_ms=1, region=None, group="g", topic="T", msg_id="ID", tags=None, keys=None, address=None,
        body_length=0, cost_ms=0, kind=MessageKind.NORMAL, offset_msg_id=None, success=False,
    )  # fmt: skip
    assert told.text == "Pub\x011\x01null\x01g\x01T\x01ID\x01null\x01null\x01null\x010\x010\x010\x01null\x01false\x02"
    assert told.keys == ("ID",)

    odd = encode("SubBefore", time_ms=1, region="r", group="g\x01h", request_id="R\x02", msg_id="ID", retries=0, keys=None)
    assert odd.text == "SubBefore\x011\x01r\x01g h\x01R \x01ID\x010\x01null\x02"


def test_consumption_before_and_after() -> None:
    before = encode("SubBefore", time_ms=7, region="r", group="g", request_id="REQ", msg_id="ID", retries=2, keys="k")
    after = encode(
        "SubAfter", time_ms=9, group="g", request_id="REQ", msg_id="ID", cost_ms=2, success=False, keys="k",
        outcome=Outcome.EXCEPTION,
    )  # fmt: skip

    assert before.text == "SubBefore\x017\x01r\x01g\x01REQ\x01ID\x012\x01k\x02"
    assert after.text == "SubAfter\x01REQ\x01ID\x012\x01false\x01k\x012\x019\x01g\x02"


def test_the_end_of_a_transaction() -> None:
    told = encode(
        "EndTransaction", time_ms=5, region="DefaultRegion", group="g", topic="T", msg_id="ID", tags=None, keys="", address="b:1",
        kind=MessageKind.TRANSACTION_COMMIT, transaction_id="TX", state="COMMIT_MESSAGE", from_check=True,
    )  # fmt: skip

    assert told.text == (
        "EndTransaction\x015\x01DefaultRegion\x01g\x01T\x01ID\x01null\x01\x01b:1\x012\x01TX\x01COMMIT_MESSAGE\x01true\x02"
    )


def test_contexts_of_a_body() -> None:
    one = encode("SubBefore", time_ms=1, region="r", group="g", request_id="R", msg_id="A", retries=0, keys="k")
    two = encode("SubBefore", time_ms=2, region="r", group="g", request_id="R", msg_id="B", retries=1, keys="k")

    assert contexts((one.text + two.text).encode()) == [
        ["SubBefore", "1", "r", "g", "R", "A", "0", "k"],
        ["SubBefore", "2", "r", "g", "R", "B", "1", "k"],
    ]
