"""Authentication and authorization of requests."""

from __future__ import annotations

from dataclasses import replace

from firearrow.auth.gate import FORWARDED_ADDRESS, FORWARDED_USER, AccessDeniedError, Gate
from firearrow.auth.policies import GET, PUB, TOPIC, Need
from firearrow.auth.users import UserStatus
from firearrow.config.secret import Secret
from firearrow.wire.codes import RequestCode
from firearrow.wire.frame import Command
from tests.auth.kit import SUPER, Users, signed, unsigned

HERE = "10.0.0.7"
READ = RequestCode.GET_MAX_OFFSET
OPEN = RequestCode.GET_BROKER_RUNTIME_INFO
UNLISTED = RequestCode.GET_BROKER_CONFIG
RULES = {int(READ): lambda request: (Need(TOPIC, "a", GET),), int(OPEN): lambda request: ()}


def refusal(gate: Gate, request: Command, address: str = HERE, *, forwarded: bool = False) -> str:
    """Return the remark of the refusal, "" if the request is admitted."""
    try:
        gate.admit(request, address, forwarded=forwarded)
    except AccessDeniedError as error:
        return error.remark
    return ""


def test_refusals_of_authentication_have_the_remarks_of_apache() -> None:
    users = Users("alice", "bob")
    bob = users.table.find("bob")
    assert bob is not None
    users.table.put_user(replace(bob, status=UserStatus.DISABLE))
    gate = users.gate(RULES)
    assert refusal(gate, unsigned(OPEN)) == "username cannot be null."
    assert refusal(gate, signed(OPEN, "")) == "username cannot be null."
    assert refusal(gate, signed(OPEN, "carol")) == "User:carol is not found."
    assert refusal(gate, signed(OPEN, "bob")) == "User:bob is disabled."
    assert refusal(gate, unsigned(OPEN, AccessKey="alice")) == "check signature failed."
    assert refusal(gate, signed(OPEN, "alice", password="wrong")) == "check signature failed."
    assert refusal(gate, signed(OPEN, "alice")) == ""


def test_caller_is_the_user_of_the_signature() -> None:
    caller = Users("alice").gate(RULES).admit(signed(OPEN, "alice"), HERE)
    assert (caller.name, caller.address, caller.is_super) == ("alice", HERE, False)


def test_normal_user_needs_a_policy() -> None:
    users = Users("alice")
    gate = users.gate(RULES)
    remark = "User:alice has no permission to access Topic:a from 10.0.0.7, no matched policies."
    assert refusal(gate, signed(READ, "alice")) == remark
    users.allow("alice", "Topic:a Get")
    assert refusal(gate, signed(READ, "alice")) == ""
    users.allow("alice", "Topic:a Get", decision="Deny")
    remark = "User:alice has no permission to access Topic:a from 10.0.0.7, the decision is deny."
    assert refusal(gate, signed(READ, "alice")) == remark


def test_super_user_may_everything() -> None:
    gate = Users().gate(RULES)
    assert [refusal(gate, signed(code, "root")) for code in (READ, OPEN, UNLISTED)] == ["", "", ""]


def test_code_without_rule_needs_a_super_user() -> None:
    users = Users("alice")
    users.allow("alice", "* All")
    assert refusal(users.gate(RULES), signed(UNLISTED, "alice")) == "request 26 needs a Super user."


def test_every_change_ends_cached_decisions() -> None:
    users = Users("alice")
    gate = users.gate(RULES)
    users.allow("alice", "Topic:a Get")
    request = signed(READ, "alice")
    assert refusal(gate, request) == ""
    users.allow("alice", "Topic:a Get", decision="Deny")
    assert "deny" in refusal(gate, request)
    users.allow("alice", "Topic:a Get")
    alice = users.table.find("alice")
    assert alice is not None
    users.table.put_user(replace(alice, password=Secret("new password")))
    assert refusal(gate, request) == "check signature failed."
    users.table.delete_user("alice")
    assert refusal(gate, request) == "User:alice is not found."
    users.add("alice")
    assert "no matched policies" in refusal(gate, request)


def test_whitelists() -> None:
    users = Users("alice")
    gate = users.gate(RULES, unsigned=[OPEN, READ], unauthorized=[UNLISTED])
    assert refusal(gate, unsigned(OPEN)) == ""
    assert refusal(gate, signed(OPEN, "alice", password="wrong")) == ""
    assert "username cannot be null" in refusal(gate, unsigned(READ))  # it still needs a permission
    assert refusal(gate, signed(UNLISTED, "alice")) == ""
    assert refusal(gate, unsigned(UNLISTED)) == "username cannot be null."
    users.allow("alice", "Topic:a Get")
    assert refusal(gate, signed(READ, "alice")) == ""
    assert refusal(gate, unsigned(READ, AccessKey="alice")) != ""  # the name alone grants nothing


def test_without_authorization_a_signature_is_enough_except_for_users() -> None:
    gate = Users("alice").gate(RULES, authorizes=False)
    assert refusal(gate, signed(UNLISTED, "alice")) == ""
    assert "needs a Super user" in refusal(gate, signed(RequestCode.AUTH_LIST_USER, "alice"))
    assert refusal(gate, signed(RequestCode.AUTH_LIST_USER, "root")) == ""


def test_request_to_forward_is_authenticated_only() -> None:
    gate = Users("alice").gate(RULES)
    assert refusal(gate, signed(READ, "alice"), forwarded=True) == ""
    assert refusal(gate, signed(READ, "alice", password="wrong"), forwarded=True) == "check signature failed."


def test_forwarded_request_is_authorized_as_its_client() -> None:
    users = Users("alice", "mallory")
    users.add("inner", SUPER)
    users.allow("alice", "Topic:a Get")
    gate = users.gate(RULES)

    def forwarded(client: str, member: str = "inner") -> Command:
        return signed(READ, member, fields={FORWARDED_USER: client, FORWARDED_ADDRESS: "10.1.1.1"})

    caller = gate.admit(forwarded("alice"), HERE)
    assert (caller.name, caller.address, caller.is_super) == ("alice", "10.1.1.1", False)
    assert "User:mallory has no permission" in refusal(gate, forwarded("mallory"))
    assert "not found" in refusal(gate, forwarded("nobody"))
    assert "may not forward" in refusal(gate, forwarded("root", member="mallory"))


def test_cached_decisions_are_bounded() -> None:
    users = Users("alice")
    users.allow("alice", "Topic:* Pub")
    principal = users.table.principal("alice")
    assert principal is not None
    for number in range(10_500):
        assert principal.refusal((Need(TOPIC, f"t{number}", PUB),), HERE) == ""
    assert users.table.principal("alice") is principal
