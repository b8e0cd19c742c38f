from __future__ import annotations

from firearrow.testing.sync import Cluster
from tests.cli.operator.kit import Firearrow, rows, send


def test_group_is_moved_skipped_and_cloned(firearrow: Firearrow, shared: Cluster) -> None:
    firearrow("topic", "create", "Books", "--queues", "1")
    firearrow("group", "create", "readers")
    send(shared, "Books", b"1", b"2", b"3")
    code, out, err = firearrow("offset", "reset", "readers", "Books", "--to", "earliest", "--yes", "-o", "json")
    assert (code, [(row["before"], row["after"]) for row in rows(out)]) == (0, [(None, 0)])
    (row,) = rows(firearrow("group", "progress", "readers", "-o", "json")[1])
    assert (row["lag"], row["consumer_offset"]) == (3, 0)
    code, out, err = firearrow("offset", "skip", "readers", "Books", "--dry-run", "-o", "csv")
    assert err == "dry run: would move readers in 1 queue of Books, skipping 3 messages\n"
    firearrow("offset", "reset", "readers", "Books", "--to", "2", "--queue", "0", "--yes")
    assert rows(firearrow("offset", "show", "readers", "-o", "json")[1])[0]["lag"] == 1
    firearrow("group", "create", "others")
    assert firearrow("offset", "clone", "readers", "others", "Books", "--yes")[0] == 0


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
