"""Directories that jobs write to: local ones, and all that PyArrow has a file system for (`s3://`, `gs://`, `hdfs://`).

A local file is on disk before its name exists: small files are written under a temporary name, synced and renamed.
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
            raise SparkOptionError(f"{location!r} is not a usable directory: {error}") from None
        self.is_local = isinstance(self._files, fs.LocalFileSystem)

    def path(self, name: str) -> str:
        return posixpath.join(self._root, name) if name else str(self._root)

    def uri(self, name: str = "") -> str:
        """Return the location in the form that Spark accepts."""
        return f"file://{self.path(name)}" if self.is_local else posixpath.join(self.location, name)

    def make(self, name: str = "") -> None:
        self._files.create_dir(self.path(name), recursive=True)

    def remove(self, name: str) -> None:
        """Remove a directory with its content, if it exists."""
        if self.exists(name):
            self._files.delete_dir(self.path(name))

    def remove_file(self, name: str) -> None:
        self._files.delete_file(self.path(name))

    def exists(self, name: str = "") -> bool:
        return bool(self._files.get_file_info(self.path(name)).type != fs.FileType.NotFound)

    def names(self, name: str = "") -> list[str]:
        """List a directory, sorted; empty if it does not exist."""
        selector = fs.FileSelector(self.path(name), allow_not_found=True)
        return sorted(info.base_name for info in self._files.get_file_info(selector))

    def size(self, name: str) -> int:
        return int(self._files.get_file_info(self.path(name)).size or 0)

    def move(self, source: str, target: str) -> None:
        self.make(posixpath.dirname(target))
        self._files.move(self.path(source), self.path(target))

    @contextmanager
    def open_write(self, name: str) -> Iterator[Any]:
        """Open a file for writing; it is on disk when the context ends."""
        self.make(posixpath.dirname(name))
        if not self.is_local:
            with self._files.open_output_stream(self.path(name)) as stream:
                yield stream
            return
        with open(self.path(name), "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())

    def open_read(self, name: str) -> Any:
        return self._files.open_input_file(self.path(name))

    def put_json(self, name: str, value: Any) -> None:
        """Write a JSON file atomically."""
        data = json.dumps(value, ensure_ascii=False, sort_keys=True, indent=1).encode()
        if not self.is_local:
            with self.open_write(name) as stream:  # an object appears only when complete
                stream.write(data)
            return
        self.make(posixpath.dirname(name))
        path = Path(self.path(name))
        replace_file(path, data, temporary=path.with_name(f"{path.name}.{uuid.uuid4().hex}.tmp"))

    def get_json(self, name: str) -> Any:
        """Read a JSON file; None if it does not exist."""
        if not self.exists(name):
            return None
        with self.open_read(name) as stream:
            data = stream.read()
        try:
            return json.loads(data)
        except ValueError as error:
            raise SparkOptionError(f"{self.path(name)} is not valid JSON: {error}") from None

    def sync(self, name: str) -> None:
        """Sync the entries of a directory."""
        if self.is_local:
            sync_directory(Path(self.path(name)))
