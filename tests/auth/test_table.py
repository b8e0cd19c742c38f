"""The table of users and policies: file, replicas, change log."""

from __future__ import annotations

from typing import Any

import pytest

from firearrow.auth.table import AuthTableError
from tests.auth.kit import PASSWORD, Users


def test_every_change_is_saved_and_can_be_loaded() -> None:
    users = Users("alice")
    users.allow("alice", "Topic:a Pub")
    assert users.saves == 3
    again = Users()
    again.table.load(users.saved)
    assert again.table.to_json() == users.table.to_json()


def test_deleting_a_user_deletes_its_list() -> None:
    users = Users("alice")
    users.allow("alice", "Topic:a Pub")
    users.table.delete_user("alice")
    users.add("alice")
    assert users.table.acl("alice") is None
    assert "Topic:a" not in str(users.saved)


def test_replica_takes_over_a_newer_table() -> None:
    master, replica = Users("alice"), Users("bob")
    master.allow("alice", "Topic:a Pub")
    replica.table.take_over(master.table.to_json())
    assert replica.table.to_json() == master.table.to_json() == replica.saved
    saves = replica.saves
    replica.table.take_over(master.table.to_json())
    assert replica.saves == saves


def test_changes_can_be_applied_again_in_order() -> None:
    master, successor = Users(), Users()
    changes: list[tuple[str, Any]] = []
    master.table.subscribe(lambda name, entry: changes.append((name, entry)))
    master.add("alice")
    master.add("bob")
    master.allow("alice", "Topic:a Pub")
    master.table.delete_user("bob")
    for name, entry in changes:
        successor.table.restore(name, entry)
    assert successor.table.to_json()["users"] == master.table.to_json()["users"]
    assert successor.table.to_json()["acls"] == master.table.to_json()["acls"]


@pytest.mark.parametrize(
    "table",
    [
        {"users": []},
        {"users": {"a": {"username": "a"}}},
        {"users": {"a": 1}},
        {"acls": {"User:a": {"subject": "Group:a", "policies": []}}},
        {"dataVersion": 1},
    ],
)
def test_invalid_file_is_an_error(table: dict[str, Any]) -> None:
    with pytest.raises(AuthTableError, match="invalid"):
        Users().table.load(table)


def test_user_with_an_unreadable_status_is_disabled() -> None:
    users = Users()
    users.table.load({"users": {"a": {"username": "a", "password": PASSWORD, "userStatus": "??"}}})
    principal = users.table.principal("a")
    assert principal is not None
    assert not principal.is_enabled


def test_passwords_are_not_shown() -> None:
    users = Users("alice")
    assert PASSWORD not in repr(list(users.table.users()))
