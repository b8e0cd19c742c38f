"""Journal of a job: its plans and results, in a directory of small files.

    job.json            identity of the job; a run with other arguments is rejected
    plan-00000012.json  input of increment 12, written before it starts
    done-00000012.json  result of increment 12, written when everything of it is stored

A killed job has at most one increment that is planned but not done. It is run again with the same plan. What it had stored is
either deleted first (files) or recognised by the broker (messages).
"""

from __future__ import annotations

import fcntl
import re
from typing import IO, Any, Final

from firearrow.spark.errors import SparkOptionError
from firearrow.spark.pipelines.storage import StorageLocation

VERSION: Final = 1
_KEPT: Final = 8  # increments kept if their results are not needed
_match_name = re.compile(r"(plan|done)-(\d{8})\.json").fullmatch


class Journal:
    """Journal of a job, used in a `with` statement, which locks the directory for one process."""

    def __init__(self, storage: StorageLocation, name: str = "") -> None:
        self._storage = storage
        self._prefix = f"{name}/" if name else ""
        self._lock: IO[bytes] | None = None

    def __enter__(self) -> Journal:
        self._storage.make(self._prefix)
        if self._storage.is_local:
            self._lock = open(self._storage.path(f"{self._prefix}lock"), "wb")
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                self._lock.close()
                raise SparkOptionError(f"another job is running in {self._storage.location}: wait for it, or stop it") from None
        return self

    def __exit__(self, *_: object) -> None:
        if self._lock is not None:
            self._lock.close()

    def begin(self, job: dict[str, Any]) -> dict[str, Any]:
        """Record the identity of the job, or compare it with the recorded one, which is returned. Keys with `_` may differ."""
        wanted = {"version": VERSION, **job}
        known = self._job()
        if known is None:
            self._storage.put_json(f"{self._prefix}job.json", wanted)
            return wanted
        for key in sorted(wanted.keys() | known.keys()):
            if not key.startswith("_") and wanted.get(key) != known.get(key):
                raise SparkOptionError(
                    f"{self._storage.location} belongs to another job: its {key} is {known.get(key)!r}, this one's is "
                    f"{wanted.get(key)!r}; use another directory, or the same arguments as before"
                )
        return known

    def job(self) -> dict[str, Any]:
        """Return the identity of the job. SparkOptionError if the directory has no journal."""
        found = self._job()
        if found is None:
            raise SparkOptionError(f"{self._storage.location!r} is not an archive: it has no {self._prefix}job.json")
        return found

    def last(self) -> tuple[int, dict[str, Any] | None, dict[str, Any] | None]:
        """Return number and result of the last completed increment, and the plan of an unfinished one."""
        known = self.increments()
        done, planned = max(known["done"], default=0), max(known["plan"], default=0)
        return done, self.get("done", done) if done else None, self.get("plan", planned) if planned > done else None

    def increments(self) -> dict[str, list[int]]:
        """Return the numbers of planned and of completed increments."""
        found: dict[str, list[int]] = {"plan": [], "done": []}
        for name in self._storage.names(self._prefix.rstrip("/")):
            if (match := _match_name(name)) is not None:
                found[match[1]].append(int(match[2]))
        return found

    def get(self, kind: str, number: int) -> dict[str, Any]:
        found: dict[str, Any] | None = self._storage.get_json(self._name(kind, number))
        if found is None:
            raise SparkOptionError(f"{self._storage.path(self._name(kind, number))} is missing: was it deleted?")
        return found

    def put(self, kind: str, number: int, value: dict[str, Any]) -> None:
        self._storage.put_json(self._name(kind, number), value)

    def remove_old(self) -> None:
        for kind, numbers in self.increments().items():
            for number in numbers[:-_KEPT]:
                self._storage.remove_file(self._name(kind, number))

    def _job(self) -> dict[str, Any] | None:
        found: dict[str, Any] | None = self._storage.get_json(f"{self._prefix}job.json")
        return found

    def _name(self, kind: str, number: int) -> str:
        return f"{self._prefix}{kind}-{number:08}.json"
