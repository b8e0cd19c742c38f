"""Bodies of the requests that manage users and access control lists (3001 to 3010)."""

from __future__ import annotations

from dataclasses import dataclass, field

from firearrow.wire.body_schema import Body


@dataclass(slots=True)
class UserInfo(Body):
    """A user. `user_type` is Super or Normal, `user_status` enable or disable."""

    username: str | None = None
    password: str | None = field(default=None, repr=False)
    user_type: str | None = None
    user_status: str | None = None


@dataclass(slots=True)
class PolicyEntryInfo(Body):
    """The decision (Allow or Deny) on some actions on a resource such as `Topic:Orders`, from some addresses or from all."""

    resource: str | None = None
    actions: list[str] | None = None
    source_ips: list[str] | None = None
    decision: str | None = None


@dataclass(slots=True)
class PolicyInfo(Body):
    """`policy_type` is Custom or Default. Custom entries are consulted first."""

    policy_type: str | None = None
    entries: list[PolicyEntryInfo] = field(default_factory=list)


@dataclass(slots=True)
class AclInfo(Body):
    """The access control list of a subject such as `User:alice`."""

    subject: str | None = None
    policies: list[PolicyInfo] = field(default_factory=list)
