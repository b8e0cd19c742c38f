"""Requests 3001 to 3010: users and access control lists.

Codes and remarks are Apache's. Passwords leave the server in one place only: a Super user may read the password of a single user
(3004), which mqadmin copyUser needs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final, NamedTuple, TypeVar

from firearrow.auth.gate import Caller, caller_of
from firearrow.auth.policies import AccessControlList, PolicyError, ResourcePattern, policy_type
from firearrow.auth.table import SUBJECT_PREFIX, AuthTable
from firearrow.auth.users import StoredUser, UserStatus, UserType
from firearrow.config.secret import MASK, Secret
from firearrow.wire import fastjson
from firearrow.wire.bodies.auth import AclInfo, UserInfo
from firearrow.wire.body_schema import Body
from firearrow.wire.codes import RequestCode, ResponseCode
from firearrow.wire.frame import Command
from firearrow.wire.headers import auth as headers

DISABLED: Final = "users and policies can be managed only with authenticationEnabled=true; set it and restart the server"
_NO_SUBJECT: Final = "The subject is not exist."

T = TypeVar("T", bound=Body)


class AuthRefusal(Exception):  # noqa: N818 (a response, not a fault)
    """Ends a request with an error response."""

    def __init__(self, code: ResponseCode, remark: str) -> None:
        super().__init__(remark)
        self.code = code
        self.remark = remark


class AuthAnswer(NamedTuple):
    """A successful response."""

    body: bytes = b""
    ext: dict[str, str] | None = None


Operation = Callable[[Command], AuthAnswer]

_DONE: Final = AuthAnswer()
DATA_VERSION: Final = "authDataVersion"
"""Field of the response to 3005 for Super users: replicas copy the table when it changes."""


class AuthAdministration:
    """Serves the requests. An operation returns the response or raises AuthRefusal."""

    def __init__(self, table: AuthTable | None) -> None:
        """Without a table, that is without authentication, every request is refused."""
        self._maybe_table = table

    def operations(self) -> dict[int, Operation]:
        return {
            RequestCode.AUTH_CREATE_USER: self._create_user,
            RequestCode.AUTH_UPDATE_USER: self._update_user,
            RequestCode.AUTH_DELETE_USER: self._delete_user,
            RequestCode.AUTH_GET_USER: self._get_user,
            RequestCode.AUTH_LIST_USER: self._list_users,
            RequestCode.AUTH_CREATE_ACL: self._put_acl,
            RequestCode.AUTH_UPDATE_ACL: self._put_acl,
            RequestCode.AUTH_DELETE_ACL: self._delete_acl,
            RequestCode.AUTH_GET_ACL: self._get_acl,
            RequestCode.AUTH_LIST_ACL: self._list_acls,
        }

    @property
    def _table(self) -> AuthTable:
        if self._maybe_table is None:
            raise AuthRefusal(ResponseCode.SYSTEM_ERROR, DISABLED)
        return self._maybe_table

    # Users

    def _create_user(self, request: Command) -> AuthAnswer:
        table, caller = self._table, _caller(request)
        name = _username(headers.CreateUserRequestHeader.decode(request.ext).username)
        info = _read(request, UserInfo)
        kind = UserType.parse(info.user_type) or UserType.NORMAL
        if kind is UserType.SUPER and not caller.is_super:
            raise AuthRefusal(ResponseCode.SYSTEM_ERROR, "The super user can only be create by super user")
        if not (info.password or "").strip():
            raise AuthRefusal(ResponseCode.NO_PERMISSION, "password can not be blank")
        if table.find(name) is not None:
            raise AuthRefusal(ResponseCode.NO_PERMISSION, "The user is existed")
        status = UserStatus.parse(info.user_status) or UserStatus.ENABLE
        table.put_user(StoredUser(name, Secret(info.password or ""), kind, status))
        return _DONE

    def _update_user(self, request: Command) -> AuthAnswer:
        table, caller = self._table, _caller(request)
        name = _username(headers.UpdateUserRequestHeader.decode(request.ext).username)
        info = _read(request, UserInfo)
        kind = UserType.parse(info.user_type)
        if kind is UserType.SUPER and not caller.is_super:
            raise AuthRefusal(ResponseCode.SYSTEM_ERROR, "The super user can only be update by super user")
        user = table.find(name)
        if user is None:
            raise AuthRefusal(ResponseCode.NO_PERMISSION, "The user is not exist")
        _check_super(user, caller)
        changed = replace(
            user,
            password=Secret(info.password) if (info.password or "").strip() and info.password else user.password,
            type=kind or user.type,
            status=UserStatus.parse(info.user_status) or user.status,
        )
        table.put_user(changed)
        return _DONE

    def _delete_user(self, request: Command) -> AuthAnswer:
        table, caller = self._table, _caller(request)
        name = _username(headers.DeleteUserRequestHeader.decode(request.ext).username)
        user = table.find(name)
        if user is not None:
            _check_super(user, caller)
            table.delete_user(name)
        return _DONE

    def _get_user(self, request: Command) -> AuthAnswer:
        name = _username(headers.GetUserRequestHeader.decode(request.ext).username)
        user = self._table.find(name)
        if user is None:
            return _DONE
        password = user.password.reveal() if _caller(request).is_super else MASK
        return AuthAnswer(_json(user.info(password=password).to_json()))

    def _list_users(self, request: Command) -> AuthAnswer:
        wanted = headers.ListUsersRequestHeader.decode(request.ext).filter or ""
        found = [user.info(password=MASK).to_json() for user in self._table.users() if wanted in user.name]
        ext = {DATA_VERSION: _json(self._table.data_version.to_json()).decode()} if _caller(request).is_super else None
        return AuthAnswer(_json(found) if found else b"", ext)

    # Access control lists

    def _put_acl(self, request: Command) -> AuthAnswer:
        """Create a list, or merge entries into it; 3006 and 3007 do the same."""
        table = self._table
        if not request.body:
            raise AuthRefusal(ResponseCode.SYSTEM_ERROR, "The body of acl is null")
        info = _read(request, AclInfo)
        subject = headers.CreateAclRequestHeader.decode(request.ext).subject or info.subject or ""
        name = _subject_name(subject)
        user = table.find(name) if name else None
        if user is None:
            raise AuthRefusal(ResponseCode.NO_PERMISSION, f"The subject of {subject} is not exist.")
        try:
            wanted = AccessControlList.from_info(user.subject, info)
        except PolicyError as error:
            raise AuthRefusal(ResponseCode.NO_PERMISSION, str(error)) from None
        known = table.acl(name)
        table.put_acl(name, wanted if known is None else known.updated(wanted))
        return _DONE

    def _delete_acl(self, request: Command) -> AuthAnswer:
        table = self._table
        header = headers.DeleteAclRequestHeader.decode(request.ext)
        name = self._known_subject(header.subject)
        acl = table.acl(name)
        if acl is None:
            raise AuthRefusal(ResponseCode.NO_PERMISSION, "The acl is not exist.")
        if header.resource:
            try:
                acl = acl.without(policy_type(header.policy_type), ResourcePattern.parse(header.resource))
            except PolicyError as error:
                raise AuthRefusal(ResponseCode.NO_PERMISSION, str(error)) from None
        else:
            acl = AccessControlList(acl.subject)
        table.put_acl(name, acl)
        return _DONE

    def _get_acl(self, request: Command) -> AuthAnswer:
        acl = self._table.acl(self._known_subject(headers.GetAclRequestHeader.decode(request.ext).subject))
        return _DONE if acl is None else AuthAnswer(_json(acl.info().to_json()))

    def _list_acls(self, request: Command) -> AuthAnswer:
        header = headers.ListAclsRequestHeader.decode(request.ext)
        found = []
        for acl in self._table.acls():
            if header.subject_filter and header.subject_filter not in acl.subject:
                continue
            resource = header.resource_filter or ""
            shown = acl if resource in acl.subject else acl.filtered(resource)
            if not shown.is_empty:
                found.append(shown.info().to_json())
        return AuthAnswer(_json(found)) if found else _DONE

    def _known_subject(self, subject: str) -> str:
        name = _subject_name(subject)
        if not name or self._table.find(name) is None:
            raise AuthRefusal(ResponseCode.NO_PERMISSION, _NO_SUBJECT)
        return name


def _caller(request: Command) -> Caller:
    caller = caller_of(request)
    assert caller is not None, "a table of users exists only with a gate"
    return caller


def _check_super(user: StoredUser, caller: Caller) -> None:
    """Refuse the change of a Super user to others."""
    if user.is_super and not caller.is_super:
        raise AuthRefusal(ResponseCode.NO_PERMISSION, "The super user can only be update by super user")


def _username(name: str) -> str:
    if not name.strip():
        raise AuthRefusal(ResponseCode.INVALID_PARAMETER, "The username is blank")
    return name


def _subject_name(subject: str) -> str:
    """Return the name of a subject `User:<name>`, the type in any capitals; empty for another subject."""
    kind, separator, name = subject.partition(":")
    return name if separator and f"{kind.lower()}:" == SUBJECT_PREFIX.lower() else ""


def _read(request: Command, kind: type[T]) -> T:
    try:
        return kind.from_json(fastjson.loads(request.body) if request.body else {})
    except ValueError as error:
        raise AuthRefusal(ResponseCode.INVALID_PARAMETER, f"the body of request {request.code} cannot be read: {error}") from None


def _json(value: Any) -> bytes:
    return fastjson.dumps(value)
