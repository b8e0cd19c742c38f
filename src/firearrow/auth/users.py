"""Users of a server."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

from firearrow.config.secret import Secret
from firearrow.wire.bodies.auth import UserInfo


class UserType(Enum):
    SUPER = "Super"  # may do everything
    NORMAL = "Normal"  # may do what policies allow

    @classmethod
    def parse(cls, text: str | None) -> UserType | None:
        """Return the type with this name in any capitals; None for another text."""
        return next((member for member in cls if text is not None and member.value.lower() == text.lower()), None)


class UserStatus(Enum):
    ENABLE = "enable"
    DISABLE = "disable"

    @classmethod
    def parse(cls, text: str | None) -> UserStatus | None:
        """Return the status with this name in any capitals; None for another text."""
        return next((member for member in cls if text is not None and member.value == text.lower()), None)


@dataclass(frozen=True, slots=True)
class StoredUser:
    name: str
    password: Secret
    type: UserType = UserType.NORMAL
    status: UserStatus = UserStatus.ENABLE

    @property
    def is_super(self) -> bool:
        return self.type is UserType.SUPER

    @property
    def subject(self) -> str:
        return f"User:{self.name}"

    def info(self, *, password: str | None = None) -> UserInfo:
        return UserInfo(self.name, password, self.type.value, self.status.value)

    def to_json(self) -> dict[str, Any]:
        """Return the form in the file, with the password."""
        return self.info(password=self.password.reveal()).to_json()

    @classmethod
    def from_json(cls, value: Any) -> StoredUser:
        info = UserInfo.from_json(value)
        if not info.username or not info.password:
            raise ValueError("a user without name or password")
        return cls(
            info.username,
            Secret(info.password),
            UserType.parse(info.user_type) or UserType.NORMAL,
            # An unreadable status must not enable a user.
            UserStatus.ENABLE if info.user_status is None else UserStatus.parse(info.user_status) or UserStatus.DISABLE,
        )
