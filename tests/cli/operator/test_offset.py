from __future__ import annotations

import json

from firearrow.testing.sync import Cluster
from tests.cli.operator.kit import Firearrow, rows, send


def test_group_is_moved_skipped_and_cloned(firearrow: Firearrow, shared: Cluster) -> None:
    firearrow("topic", "create", "Books", "--queues", "1")
    assert firearrow("group", "create", "readers", "--retries", "4") == (0, "created readers on broker-a\n", "")
    assert rows(firearrow("group", "show", "readers", "-o", "json")[1])[0]["retry_max_times"] == 4
    send(shared, "Books", b"1", b"2", b"3")
    code, out, err = firearrow("offset", "reset", "readers", "Books", "--to", "earliest", "--yes", "-o", "json")
    assert (code, [(row["before"], row["after"]) for row in rows(out)]) == (0, [(None, 0)])
    (row,) = rows(firearrow("group", "progress", "readers", "-o", "json")[1])
    assert (row["lag"], row["consumer_offset"]) == (3, 0)
    assert firearrow("group", "progress", "readers")[1].endswith("lag 3, in flight 0\n")
    code, out, err = firearrow("offset", "skip", "readers", "Books", "--dry-run", "-o", "csv")
    assert err == "dry run: would move readers in 1 queue of Books, skipping 3 messages\n"
    assert rows(firearrow("group", "list", "--like", "readers", "--behind", "3", "-o", "json")[1])[0]["lag"] == 3
    firearrow("offset", "reset", "readers", "Books", "--to", "2", "--queue", "0", "--yes")
    assert rows(firearrow("offset", "show", "readers", "-o", "json")[1])[0]["lag"] == 1
    firearrow("group", "create", "others")
    with shared.push_consumer(group="readers", subscribe={"Books": "*"}, listener=lambda message: None):
        (member,) = rows(firearrow("group", "members", "readers", "-o", "json")[1])
        assert member["subscriptions"]["Books"] == "*"
        assert member["client_id"] in firearrow("client", "list", "--group", "readers")[1]
        code, out, _ = firearrow("client", "show", "readers", member["client_id"], "-o", "json")
        assert {queue["queue_id"] for queue in json.loads(out)["queues"] if queue["topic"] == "Books"} == {0}
    assert firearrow("offset", "clone", "readers", "others", "Books", "--yes")[0] == 0
    assert firearrow("group", "delete", "readers", "others", "--yes")[0] == 0
    assert firearrow("group", "members", "readers")[0] == 1


def test_rewinding_shows_redelivered_messages(firearrow: Firearrow, shared: Cluster) -> None:
    firearrow("topic", "create", "Rewound", "--queues", "1")
    firearrow("group", "create", "rewinders")
    send(shared, "Rewound", b"1", b"2", b"3")
    firearrow("offset", "reset", "rewinders", "Rewound", "--to", "latest", "--yes")
    code, out, err = firearrow("offset", "reset", "rewinders", "Rewound", "--to", "earliest", "--dry-run", "-o", "json")
    assert (code, err) == (0, "dry run: would move rewinders in 1 queue of Rewound, redelivering 3 messages\n")
    (row,) = rows(out)
    assert (row["before"], row["after"], row["skipped"], row["redelivered"]) == (3, 0, 0, 3)
    code, out, err = firearrow("offset", "reset", "rewinders", "Rewound", "--to", "2", "--queue", "0", "--dry-run")
    assert err == "dry run: would move rewinders in 1 queue of Rewound, redelivering 1 message\n"
