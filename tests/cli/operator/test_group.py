"""`firearrow group`: configuration, members and progress of groups."""

from __future__ import annotations

from firearrow.testing.sync import Cluster
from tests.cli.operator.kit import Firearrow, rows, send


def test_group_is_created_altered_and_deleted(firearrow: Firearrow) -> None:
    assert firearrow("group", "create", "life", "--retries", "4") == (0, "created life on broker-a\n", "")
    assert firearrow("group", "alter", "life", "--consume", "no", "--consume-timeout", "30m") == (
        0,
        "changed life on broker-a\n",
        "",
    )
    (config,) = rows(firearrow("group", "show", "life", "-o", "json")[1])
    assert (config["retry_max_times"], config["consume_enable"], config["consume_timeout_minute"]) == (4, False, 30)
    assert firearrow("group", "delete", "life", "--dry-run") == (0, "", "dry run: would delete the group life with offsets\n")
    assert firearrow("group", "delete", "life", "--yes") == (0, "deleted life from broker-a\n", "")
    assert firearrow("group", "show", "life")[0] == 1


def test_invalid_changes_are_rejected(firearrow: Firearrow) -> None:
    firearrow("group", "create", "unchanged")
    code, _, err = firearrow("group", "alter", "unchanged")
    assert (code, "nothing to change" in err) == (2, True)
    code, _, err = firearrow("group", "alter", "unchanged", "--consume-timeout", "90s")
    assert (code, "resolution of one minute" in err) == (2, True)
    assert rows(firearrow("group", "show", "unchanged", "-o", "json")[1])[0]["consume_timeout_minute"] == 15


def test_no_group_is_deleted_if_one_of_them_does_not_exist(firearrow: Firearrow) -> None:
    firearrow("group", "create", "kept")
    assert firearrow("group", "delete", "kept", "other", "--yes")[0] == 1
    assert firearrow("group", "show", "kept")[0] == 0
    firearrow("group", "create", "other")
    assert firearrow("group", "delete", "kept", "other", "--yes")[0] == 0
    assert firearrow("group", "show", "kept")[0] == 1


def test_progress_and_lag_of_a_group(firearrow: Firearrow, shared: Cluster) -> None:
    firearrow("topic", "create", "Read", "--queues", "1")
    firearrow("group", "create", "late-readers")
    send(shared, "Read", b"1", b"2", b"3")
    firearrow("offset", "reset", "late-readers", "Read", "--to", "earliest", "--yes")
    (row,) = rows(firearrow("group", "progress", "late-readers", "-o", "json")[1])
    assert (row["topic"], row["broker_offset"], row["consumer_offset"], row["lag"]) == ("Read", 3, 0, 3)
    assert firearrow("group", "progress", "late-readers")[1].endswith("lag 3, in flight 0\n")
    listed = ("group", "list", "--like", "LATE", "-o", "json", "--behind")
    assert [one["lag"] for one in rows(firearrow(*listed, "3")[1])] == [3]
    assert rows(firearrow(*listed, "4")[1]) == []


def test_members_are_listed_with_their_subscriptions(firearrow: Firearrow, shared: Cluster) -> None:
    firearrow("topic", "create", "Joined", "--queues", "1")
    with shared.push_consumer(group="joined", subscribe={"Joined": "a || b"}, listener=lambda message: None):
        (member,) = rows(firearrow("group", "members", "joined", "-o", "json")[1])
        assert (member["subscriptions"]["Joined"], member["message_model"]) == ("a || b", "CLUSTERING")
        assert "subscribes to Joined: a || b\n" in firearrow("group", "members", "joined")[1]
    assert firearrow("group", "members", "joined")[0] == 1
