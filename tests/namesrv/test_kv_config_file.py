"""The writer of the key-value configuration file."""

from __future__ import annotations

import threading
from typing import Any

from firearrow.namesrv.kv_config_file import KvConfigFile
from tests.support.waiting import run, until


def test_changes_that_come_during_a_write_are_written_together() -> None:
    written: list[Any] = []
    go_on = threading.Event()

    def write(table: dict[str, Any]) -> None:
        go_on.wait(60)
        assert threading.current_thread() is not threading.main_thread()
        written.append(table["n"])

    async def story() -> None:
        file = KvConfigFile(write)
        done: list[Exception | None] = []
        table = {"n": 0}
        file.save(lambda: dict(table), done.append)
        await until(lambda: True)
        for number in range(1, 100):
            table["n"] = number
            file.save(lambda: dict(table), done.append)
        assert done == []  # acknowledged when it is written
        go_on.set()
        await file.finish()
        assert (len(done), written[-1], len(written) <= 3) == (100, 99, True)

    run(story())


def test_error_is_passed_on_and_the_next_change_is_written() -> None:
    written: list[Any] = []

    def write(table: dict[str, Any]) -> None:
        if table["n"] == 0:
            raise OSError("no space left")
        written.append(table["n"])

    async def story() -> None:
        file = KvConfigFile(write)
        done: list[Exception | None] = []
        file.save(lambda: {"n": 0}, done.append)
        await file.finish()
        file.save(lambda: {"n": 1}, done.append)
        await file.finish()
        assert (str(done[0]), done[1], written) == ("no space left", None, [1])

    run(story())
