from __future__ import annotations

import json
from pathlib import Path

from firearrow.client.consumer.listener import RetryLater
from firearrow.client.message import ReceivedMessage
from firearrow.testing.sync import Cluster
from tests.cli.operator.kit import Firearrow, rows, send
from tests.support.waiting import wait_until


def test_dead_letters_are_exported_and_resent(firearrow: Firearrow, shared: Cluster, tmp_path: Path) -> None:
    firearrow("topic", "create", "Jobs", "--queues", "1")
    ids = send(shared, "Jobs", b"one", b"two", b"three", tags="t")
    failed: list[str] = []

    def fail(message: ReceivedMessage) -> None:
        failed.append(message.msg_id)
        raise RetryLater(-1)

    with shared.push_consumer(group="workers", subscribe={"Jobs": "*"}, listener=fail, start_from="earliest"):
        wait_until(lambda: "%DLQ%workers" in firearrow("topic", "list", "--all")[1] and dead(firearrow) == 3, "the messages")
    assert [row["body"] for row in rows(firearrow("dlq", "list", "workers", "-o", "json")[1])] == ["one", "two", "three"]
    assert "two" in firearrow("dlq", "show", "workers", ids[1])[1]
    file = tmp_path / "letters.jsonl"
    assert firearrow("dlq", "export", "workers", str(file))[:2] == (0, f"wrote 3 dead letters of workers to {file}\n")
    assert firearrow("dlq", "export", "workers", str(file))[0] == 1, "a file that is there is not written over"
    assert firearrow("dlq", "resend", "workers", "--all")[0] == 2

    taken: list[bytes] = []
    with shared.push_consumer(group="workers", subscribe={"Jobs": "*"}, listener=lambda m: taken.append(m.body)):
        assert firearrow("dlq", "resend", "workers", ids[0], ids[2], "--yes")[:2] == (0, "sent 2 again, 0 failed\n")
        wait_until(lambda: len(taken) == 2, "the messages")
        code, out, _ = firearrow("dlq", "import", str(file), "--rate", "100", "--yes", "-o", "json")
        assert (code, json.loads(out)["sent"]) == (0, 3)
        wait_until(lambda: len(taken) == 5, "the messages")
    assert sorted(taken) == [b"one", b"one", b"three", b"three", b"two"]
    file.write_text(file.read_text() + "{}\n")
    code, _, err = firearrow("dlq", "import", str(file), "--yes")
    assert (code, "line 4: not a line of a dead letter export" in err, "nothing was sent" in err) == (1, True, True)


def dead(firearrow: Firearrow) -> int:
    found = rows(firearrow("dlq", "list", "-o", "json")[1])
    return sum(int(row["messages"]) for row in found if row["group"] == "workers")
