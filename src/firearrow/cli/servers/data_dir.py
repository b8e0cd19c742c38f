"""The data directory of `firearrow up`: its layout and its lock.

With one broker the directory is that broker's store in Apache's layout. With several brokers, each has a subdirectory
(`broker-a`, `broker-b`, ...). With `--cluster`, each member has one with its store in `store/`, and `cluster.json` names its
form. The name server's table is in `namesrv/`. The process that uses the directory holds `firearrow.lock`; a second process is
rejected before it opens any file.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from firearrow.cli.local_cluster.state import form_of


class DataDirError(Exception):
    """The directory cannot be used."""


class DataDir:
    def __init__(self, path: str) -> None:
        self.path = Path(path).absolute()
        self._lock: int | None = None

    def acquire(self, brokers: int, form: str | None = None) -> None:
        """Lock the directory for a number of brokers, or for a cluster form."""
        self.path.mkdir(parents=True, exist_ok=True)
        self._check_form(form)
        self._check_layout(brokers if form is None else 0)
        descriptor = os.open(self.path / "firearrow.lock", os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.read(descriptor, 32).decode("ascii", "replace").strip() or "unknown"
            os.close(descriptor)
            raise DataDirError(
                f"data directory {self.path} is in use by process {holder}; stop that process or use another --data"
            ) from error
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        self._lock = descriptor

    def release(self) -> None:
        """Unlock the directory. The lock file remains: without it, two processes could lock different files of the same name."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _check_form(self, form: str | None) -> None:
        kept = form_of(self.path)
        if kept is not None and kept != form:
            raise DataDirError(
                f"data directory {self.path} contains a cluster of the form {kept}; start it with --cluster {kept},"
                " or use another --data"
            )

    def _check_layout(self, brokers: int) -> None:
        alone = (self.path / "commitlog").is_dir()
        several = (self.path / "broker-a" / "commitlog").is_dir()
        if not brokers and (alone or several):
            raise DataDirError(
                f"data directory {self.path} contains the stores of `firearrow up` without --cluster; use another --data"
            )
        if brokers > 1 and alone:
            raise DataDirError(
                f"data directory {self.path} is the store of a single broker; start it without --brokers, or use another --data"
            )
        if brokers == 1 and several and not alone:
            count = sum((path / "commitlog").is_dir() for path in self.path.glob("broker-?"))
            raise DataDirError(
                f"data directory {self.path} contains the stores of {count} brokers; start it with --brokers {count},"
                " or use another --data"
            )
