"""Directories that jobs write to: local ones, and whatever else pyarrow has a file system for (`s3://`, `gs://`, `hdfs://`).

What is written to a local one is on the disk before its name is there: small files are written beside, synced and renamed.
"""

from __future__ import annotations

import json
import os
import posixpath
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyarrow import fs

from firearrow.atomic_file import replace_file, sync_directory
from firearrow.spark.errors import SparkOptionError


class StorageLocation:
    """A directory. `location` is a path or a URI; names are relative to it, with `/`."""

    def __init__(self, location: str) -> None:
        self.location = location
        try:
            if "://" in location:
                self._files, self._root = fs.FileSystem.from_uri(location)
            else:
                self._files, self._root = fs.LocalFileSystem(), os.path.abspath(location)
        except (ValueError, OSError) as error:
            raise SparkOptionError(f"{location!r} is no place to write to: {error}") from None
        self.is_local = isinstance(self._files, fs.LocalFileSystem)

    def path(self, name: str) -> str:
        return posixpath.join(self._root, name) if name else str(self._root)

    def uri(self, name: str = "") -> str:
        """As Spark takes it."""
        return f"file://{self.path(name)}" if self.is_local else posixpath.join(self.location, name)

    def make(self, name: str = "") -> None:
        self._files.create_dir(self.path(name), recursive=True)

    def remove(self, name: str) -> None:
        """A directory and all in it, if it is there."""
        if self.exists(name):
            self._files.delete_dir(self.path(name))

    def remove_file(self, name: str) -> None:
        self._files.delete_file(self.path(name))

    def exists(self, name: str = "") -> bool:
        return bool(self._files.get_file_info(self.path(name)).type != fs.FileType.NotFound)

    def names(self, name: str = "") -> list[str]:
        """What lies in a directory, sorted; nothing if there is none."""
        selector = fs.FileSelector(self.path(name), allow_not_found=True)
        return sorted(info.base_name for info in self._files.get_file_info(selector))

    def size(self, name: str) -> int:
        return int(self._files.get_file_info(self.path(name)).size or 0)

    def move(self, source: str, target: str) -> None:
        self.make(posixpath.dirname(target))
        self._files.move(self.path(source), self.path(target))

    @contextmanager
    def writing(self, name: str) -> Iterator[Any]:
        """A file to write to; it is on the disk afterwards."""
        self.make(posixpath.dirname(name))
        if not self.is_local:
            with self._files.open_output_stream(self.path(name)) as stream:
                yield stream
            return
        with open(self.path(name), "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())

    def reading(self, name: str) -> Any:
        return self._files.open_input_file(self.path(name))

    def put_json(self, name: str, value: Any) -> None:
        """Whole or not at all, also when we are killed meanwhile."""
        data = json.dumps(value, ensure_ascii=False, sort_keys=True, indent=1).encode()
        if not self.is_local:
            with self.writing(name) as stream:  # an object appears when it is whole
                stream.write(data)
            return
        self.make(posixpath.dirname(name))
        path = Path(self.path(name))
        replace_file(path, data, temporary=path.with_name(f"{path.name}.{uuid.uuid4().hex}.tmp"))

    def get_json(self, name: str) -> Any:
        """None if there is none."""
        if not self.exists(name):
            return None
        with self.reading(name) as stream:
            data = stream.read()
        try:
            return json.loads(data)
        except ValueError as error:
            raise SparkOptionError(f"{self.path(name)} is not one of ours, expected JSON: {error}") from None

    def sync(self, name: str) -> None:
        """The names in a directory are on the disk."""
        if self.is_local:
            sync_directory(Path(self.path(name)))
