"""A request that the broker will not carry out, and why.

Handlers raise it for a peer's fault; the dispatcher turns it into a response with this code and remark, and the connection
stays up. The remark is read by a person: it says what is wrong, with the value, and what to do.
"""

from __future__ import annotations

from collections.abc import Mapping


class Refused(Exception):  # noqa: N818 - it is the answer itself, not a failure of ours
    __slots__ = ("code", "ext", "remark")

    def __init__(self, code: int, remark: str, ext: Mapping[str, str | int | bool] | None = None) -> None:
        super().__init__(f"{int(code)}: {remark}")
        self.code = int(code)
        self.remark = remark
        self.ext = ext
