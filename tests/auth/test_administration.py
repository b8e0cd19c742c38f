"""Requests 3001 to 3010."""

from __future__ import annotations

import json
from typing import Any

import pytest

from firearrow.auth.administration import DATA_VERSION, DISABLED, AuthAdministration, AuthAnswer, AuthRefusal
from firearrow.auth.gate import Caller
from firearrow.wire.codes import RequestCode as Code
from firearrow.wire.frame import Command
from tests.auth.kit import PASSWORD, Users


class Desk:
    """Sends requests as one user."""

    def __init__(self, users: Users, name: str) -> None:
        self._users = users
        self._name = name
        self._operations = AuthAdministration(users.table).operations()

    def answer(self, code: Code, body: Any = None, **ext: str) -> AuthAnswer:
        request = Command(code, ext=dict(ext), body=b"" if body is None else json.dumps(body).encode())
        request.caller = Caller(self._users.table.principal(self._name), "10.0.0.7")
        return self._operations[code](request)

    def ask(self, code: Code, body: Any = None, **ext: str) -> Any:
        answer = self.answer(code, body, **ext).body
        return json.loads(answer) if answer else None

    def refused(self, code: Code, body: Any = None, **ext: str) -> tuple[int, str]:
        with pytest.raises(AuthRefusal) as caught:
            self.answer(code, body, **ext)
        return caught.value.code, caught.value.remark


def policy(resource: str = "Topic:T", **changes: Any) -> dict[str, Any]:
    entry = {"actions": ["Pub"], "decision": "Allow", "resource": resource, **changes}
    return {"policies": [{"entries": [entry]}], "subject": "User:alice"}


def test_users_are_created_changed_listed_and_deleted() -> None:
    users = Users()
    root = Desk(users, "root")
    assert root.ask(Code.AUTH_CREATE_USER, {"password": "p1", "username": "ignored"}, username="alice") is None
    assert root.ask(Code.AUTH_GET_USER, username="alice") == {
        "password": "p1",
        "userStatus": "enable",
        "userType": "Normal",
        "username": "alice",
    }
    root.ask(Code.AUTH_UPDATE_USER, {"userStatus": "DISABLE", "userType": "super"}, username="alice")
    assert root.ask(Code.AUTH_GET_USER, username="alice")["userStatus"] == "disable"
    assert [user["username"] for user in root.ask(Code.AUTH_LIST_USER)] == ["root", "alice"]
    assert [user["username"] for user in root.ask(Code.AUTH_LIST_USER, filter="lic")] == ["alice"]
    assert root.ask(Code.AUTH_LIST_USER, filter="x") is None
    root.ask(Code.AUTH_DELETE_USER, username="alice")
    root.ask(Code.AUTH_DELETE_USER, username="alice")
    assert root.ask(Code.AUTH_GET_USER, username="alice") is None


def test_refusals_for_users() -> None:
    users = Users("alice")
    root = Desk(users, "root")
    for code in (Code.AUTH_CREATE_USER, Code.AUTH_UPDATE_USER, Code.AUTH_GET_USER):
        assert root.refused(code, {"password": "p"}, username=" ") == (29, "The username is blank")
    assert root.refused(Code.AUTH_CREATE_USER, {"password": "p"}, username="alice") == (16, "The user is existed")
    assert root.refused(Code.AUTH_UPDATE_USER, {"password": "p"}, username="bob") == (16, "The user is not exist")
    assert root.refused(Code.AUTH_CREATE_USER, {}, username="bob") == (16, "password can not be blank")


def test_super_users_are_managed_by_super_users_only() -> None:
    users = Users("alice", "bob")
    alice = Desk(users, "alice")
    new = {"password": "p", "userType": "Super"}
    create, update = (f"The super user can only be {verb} by super user" for verb in ("create", "update"))
    assert alice.refused(Code.AUTH_CREATE_USER, new, username="eve") == (1, create)
    assert alice.refused(Code.AUTH_UPDATE_USER, new, username="bob") == (1, update)
    assert alice.refused(Code.AUTH_UPDATE_USER, {"password": "mine"}, username="root") == (16, update)
    assert alice.refused(Code.AUTH_DELETE_USER, username="root") == (16, update)
    assert users.table.find("eve") is None
    alice.ask(Code.AUTH_UPDATE_USER, {"password": "p"}, username="bob")


def test_password_is_shown_to_super_users_and_for_one_user_only() -> None:
    users = Users("alice")
    for name in ("root", "alice"):
        listed = Desk(users, name).answer(Code.AUTH_LIST_USER)
        assert PASSWORD.encode() not in listed.body
        assert (DATA_VERSION in (listed.ext or {})) is (name == "root")
    assert Desk(users, "root").ask(Code.AUTH_GET_USER, username="alice")["password"] == PASSWORD
    assert Desk(users, "alice").ask(Code.AUTH_GET_USER, username="alice")["password"] == "******"


def test_lists_are_created_merged_filtered_and_deleted() -> None:
    users = Users("alice", "bob")
    root = Desk(users, "root")
    assert root.ask(Code.AUTH_GET_ACL, subject="User:alice") is None
    root.ask(Code.AUTH_CREATE_ACL, policy(), subject="User:alice")
    root.ask(Code.AUTH_UPDATE_ACL, policy("Group:g", actions=["Sub"], sourceIps=["10.0.0.0/8"]), subject="User:alice")
    topic = {"actions": ["Pub"], "decision": "Allow", "resource": "Topic:T"}
    group = {"actions": ["Sub"], "decision": "Allow", "resource": "Group:g", "sourceIps": ["10.0.0.0/8"]}

    def shown(*entries: dict[str, Any]) -> dict[str, Any]:
        return {"policies": [{"entries": list(entries), "policyType": "Custom"}], "subject": "User:alice"}

    assert root.ask(Code.AUTH_GET_ACL, subject="User:alice") == shown(topic, group)
    assert root.ask(Code.AUTH_LIST_ACL) == [shown(topic, group)]
    assert root.ask(Code.AUTH_LIST_ACL, resourceFilter="Group") == [shown(group)]
    assert root.ask(Code.AUTH_LIST_ACL, resourceFilter="alice") == [shown(topic, group)]
    assert root.ask(Code.AUTH_LIST_ACL, subjectFilter="bob") is None
    assert root.ask(Code.AUTH_LIST_ACL, resourceFilter="x") is None
    root.ask(Code.AUTH_DELETE_ACL, subject="User:alice", resource="Topic:T")
    assert root.ask(Code.AUTH_GET_ACL, subject="User:alice") == shown(group)
    root.ask(Code.AUTH_DELETE_ACL, subject="User:alice")
    assert root.ask(Code.AUTH_GET_ACL, subject="User:alice") is None


def test_refusals_for_lists() -> None:
    users = Users("alice")
    root = Desk(users, "root")
    for code in (Code.AUTH_CREATE_ACL, Code.AUTH_UPDATE_ACL):
        assert root.refused(code, policy(), subject="User:x") == (16, "The subject of User:x is not exist.")
        assert root.refused(code, subject="User:alice") == (1, "The body of acl is null")
        assert root.refused(code, policy(decision="x"), subject="User:alice") == (16, "The decision is null or illegal.")
    for code in (Code.AUTH_DELETE_ACL, Code.AUTH_GET_ACL):
        assert root.refused(code, subject="User:x") == (16, "The subject is not exist.")
    assert root.refused(Code.AUTH_DELETE_ACL, subject="User:alice") == (16, "The acl is not exist.")


def test_without_authentication_nothing_is_managed() -> None:
    for code, operation in AuthAdministration(None).operations().items():
        with pytest.raises(AuthRefusal) as caught:
            operation(Command(code, ext={"username": "a", "subject": "User:a"}, body=b"{}"))
        assert (caught.value.code, caught.value.remark) == (1, DISABLED)
