"""Headers of the requests that manage users and access control lists (3001 to 3010)."""

from __future__ import annotations

from firearrow.wire.codes import RequestCode
from firearrow.wire.header_schema import Header

# ---- users


class CreateUserRequestHeader(Header, code=RequestCode.AUTH_CREATE_USER):
    """The body is a UserInfo."""

    username: str = ""


class UpdateUserRequestHeader(Header, code=RequestCode.AUTH_UPDATE_USER):
    """The body is a UserInfo with the fields to change."""

    username: str = ""


class DeleteUserRequestHeader(Header, code=RequestCode.AUTH_DELETE_USER):
    username: str = ""


class GetUserRequestHeader(Header, code=RequestCode.AUTH_GET_USER):
    username: str = ""


class ListUsersRequestHeader(Header, code=RequestCode.AUTH_LIST_USER):
    filter: str | None = None  # part of the name


# ---- access control lists


class CreateAclRequestHeader(Header, code=RequestCode.AUTH_CREATE_ACL):
    """The body is an AclInfo."""

    subject: str = ""


class UpdateAclRequestHeader(Header, code=RequestCode.AUTH_UPDATE_ACL):
    """The body is an AclInfo. An entry replaces the one with the same resource."""

    subject: str = ""


class DeleteAclRequestHeader(Header, code=RequestCode.AUTH_DELETE_ACL):
    """Without a resource the whole list of the subject is deleted."""

    subject: str = ""
    policy_type: str | None = None  # Custom if not given
    resource: str | None = None


class GetAclRequestHeader(Header, code=RequestCode.AUTH_GET_ACL):
    subject: str = ""


class ListAclsRequestHeader(Header, code=RequestCode.AUTH_LIST_ACL):
    subject_filter: str | None = None
    resource_filter: str | None = None
