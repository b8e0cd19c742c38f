"""The small files of an elected group: replaced as a whole, kept twice.

`save_twice` replaces `<file>.bak`, makes it durable, then does the same with `<file>`. Both hold the same text afterwards. After
a crash in between the copy is one step ahead, of a step that nobody was told of yet; both texts are then right. So the file is
read first, and its copy only when the file is damaged: the copy is never older. (The tables of the broker keep the version
before in their `.bak`, which would not do here: an older vote is a second vote.)
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TypeVar

from firearrow.store.atomic_file import replace
from firearrow.store.errors import StoreError
from firearrow.store.filesystem import Disk

COPY = ".bak"

Value = TypeVar("Value")


class DamagedFileError(StoreError):
    """A file and its copy are both unreadable."""


def save_twice(disk: Disk, path: str, text: bytes) -> None:
    """Durable on return."""
    disk.mkdirs(os.path.dirname(path))
    for target in (path + COPY, path):
        replace(disk, target, text)


def load_twice(disk: Disk, path: str, decode: Callable[[bytes], Value]) -> Value | None:
    """The value; None when neither the file nor its copy exists. `decode` raises ValueError for a damaged text.

    A copy alone is a first save that was interrupted: nobody relied on it, and it is as good as the file.
    """
    problems = []
    for target in (path, path + COPY):
        if not disk.exists(target):
            continue
        try:
            return decode(disk.read_bytes(target))
        except ValueError as error:
            problems.append(f"{target}: {error}")
    if problems:
        raise DamagedFileError(
            f"{'; '.join(problems)}. This member stays out of its group. If the other members are well, stop it, move its store "
            "directory away and start it again: it fetches everything from them"
        )
    return None
