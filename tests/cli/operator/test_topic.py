from __future__ import annotations

import csv
import io

from tests.cli.operator.kit import Firearrow, rows


def test_topic_is_created_altered_and_deleted(firearrow: Firearrow) -> None:
    assert firearrow("topic", "create", "Life", "--queues", "3", "--type", "DELAY") == (
        0,
        "created Life with 3 queues on broker-a\n",
        "",
    )
    code, out, err = firearrow("topic", "create", "Life")
    assert (code, out) == (1, "")
    assert err == ("firearrow topic create: topic 'Life' already exists on broker-a; change it with `firearrow topic alter`\n")
    code, out, _ = firearrow("topic", "list", "--like", "LIF", "-o", "json")
    assert (code, rows(out)[0]["write_queues"], rows(out)[0]["message_type"]) == (0, 3, "DELAY")
    assert firearrow("topic", "alter", "Life", "--perm", "r", "--read-queues", "5")[0] == 0
    code, out, _ = firearrow("topic", "show", "Life", "-o", "csv")
    (row,) = csv.DictReader(io.StringIO(out))
    assert (row["read_queues"], row["write_queues"], row["perm"], row["order"]) == ("5", "3", "r", "false")
    assert "Life" in firearrow("topic", "list")[1]
    assert firearrow("topic", "route", "Life", "-o", "json")[1].count("broker-a") == 1
    assert len(rows(firearrow("topic", "status", "Life", "-o", "json")[1])) == 5

    code, out, err = firearrow("topic", "delete", "Life")
    assert (code, out) == (2, "")
    assert err == ("firearrow topic delete: this would delete Life (0 messages); without a terminal, pass --yes or --dry-run\n")
    assert firearrow("topic", "delete", "Life", "--dry-run") == (0, "", "dry run: would delete Life (0 messages)\n")
    assert firearrow("topic", "show", "Life")[0] == 0
    assert firearrow("topic", "delete", "Life", "--yes") == (0, "deleted Life from broker-a\n", "")
    assert firearrow("topic", "show", "Life") == (1, "", "firearrow topic show: topic 'Life' does not exist\n")


def test_order_configuration_is_set_and_deleted(firearrow: Firearrow) -> None:
    assert firearrow("topic", "order", "Fixed") == (0, "", "nothing found\n")
    code, _, err = firearrow("topic", "order", "Fixed", "--set", "broker-a:4")
    assert (code, "pass --yes" in err) == (2, True)
    code, _, err = firearrow("topic", "order", "Fixed", "--set", "broker-a", "--yes")
    assert (code, err.count("\n"), "is not of the form broker:queues" in err) == (2, 1, True)
    assert firearrow("topic", "order", "Fixed", "--set", "broker-a:4;broker-b:2", "--yes") == (
        0,
        "fixed the queues of Fixed to broker-a:4;broker-b:2\n",
        "",
    )
    code, out, _ = firearrow("topic", "order", "Fixed", "-o", "json")
    assert (code, rows(out)) == (0, [{"broker": "broker-a", "queues": 4}, {"broker": "broker-b", "queues": 2}])
    assert firearrow("topic", "order", "Fixed", "--delete", "--yes")[0] == 0
    assert firearrow("topic", "order", "Fixed", "--delete", "--yes")[0] == 1
