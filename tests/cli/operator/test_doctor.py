from __future__ import annotations

from tests.cli.operator.kit import Firearrow, rows


def test_unreachable_name_server_is_an_error(firearrow: Firearrow) -> None:
    code, out, _ = firearrow("doctor", "-n", "127.0.0.1:1")
    assert code == 1
    assert out.startswith("ERROR 127.0.0.1:1: the name server does not answer")
    assert out.splitlines()[-1] == "1 problem; checked 1 name server"


def test_findings_have_a_cause_and_a_fix(firearrow: Firearrow) -> None:
    firearrow("topic", "create", "Uneven", "--queues", "4")
    firearrow("topic", "alter", "Uneven", "--read-queues", "2")
    code, out, _ = firearrow("doctor", "-o", "json")
    assert code == 1
    (found,) = [row for row in rows(out) if row["subject"] == "Uneven"]
    assert (found["severity"], found["fix"]) == ("error", "firearrow topic alter Uneven --read-queues 4 --broker broker-a")
    assert "    fix: firearrow topic alter Uneven --read-queues 4" in firearrow("doctor")[1]
