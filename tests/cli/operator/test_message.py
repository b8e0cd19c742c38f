from __future__ import annotations

import json

from firearrow.testing.sync import Cluster
from tests.cli.operator.kit import Firearrow, rows, send


def test_messages_are_found_shown_and_resent(firearrow: Firearrow, shared: Cluster) -> None:
    firearrow("topic", "create", "Mail", "--queues", "1")
    first, second = send(shared, "Mail", b'{"n": 1}', b"\x00\x01", tags="new", keys="k1")
    code, out, _ = firearrow("message", "show", "Mail", first, "-o", "json")
    assert (code, json.loads(out)["body"], json.loads(out)["tags"]) == (0, '{"n": 1}', "new")
    code, out, _ = firearrow("message", "show", "Mail", first, "--body", "json")
    assert out.endswith('{\n  "n": 1\n}\n')
    assert "00 01" in firearrow("message", "show", "Mail", second)[1]
    assert [row["msg_id"] for row in rows(firearrow("message", "peek", "Mail", "-o", "json")[1])] == [first, second]
    assert {row["msg_id"] for row in rows(firearrow("message", "find", "Mail", "--key", "k1", "-o", "json")[1])} == {
        first,
        second,
    }
    found = rows(firearrow("message", "find", "Mail", "--contains", '"n"', "--from", "1h", "-o", "json")[1])
    assert [row["msg_id"] for row in found] == [first]
    assert json.loads(firearrow("message", "at", "Mail", "broker-a", "0", "1", "-o", "json")[1])["msg_id"] == second
    code, _, err = firearrow("message", "at", "Mail", "broker-a", "0", "9")
    assert (code, err) == (
        1,
        "firearrow message at: queue 0 of topic 'Mail' on broker-a has no message at offset 9; it has 0 to 1\n",
    )
    assert firearrow("message", "resend", "Mail", first, "--yes")[0] == 0
    assert len(rows(firearrow("message", "find", "Mail", "--key", "k1", "-o", "json")[1])) == 3
    code, out, err = firearrow("message", "find", "Mail", "--tag", "none")
    assert (code, out, err) == (0, "", "nothing found\n")


def test_given_up_transactions_are_listed_and_rechecked(firearrow: Firearrow) -> None:
    assert firearrow("message", "undecided", "-o", "json") == (0, "[]\n", "")
    code, _, err = firearrow("message", "recheck", "AC110002000118B4AAC20000", "--yes")
    assert (code, err.count("\n"), "AC110002000118B4AAC20000" in err) == (1, 1, True)
    assert firearrow("message", "recheck", "AC110002000118B4AAC20000")[0] == 2
