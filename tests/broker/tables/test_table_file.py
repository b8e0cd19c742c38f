"""When a table is written, and as what."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from firearrow.broker.tables.table_file import EntryTexts, TableFile
from firearrow.wire import fastjson


def test_soon_writes_once_for_many_changes_and_again_for_later_ones() -> None:
    written: list[Any] = []
    jobs: list[Callable[[], None]] = []
    state = {"n": 0}
    file = TableFile(written.append, lambda: dict(state), jobs.append)
    for number in range(1, 4):
        state["n"] = number
        file.soon()
    assert (len(jobs), written) == (1, [])
    jobs.pop()()
    assert written == [{"n": 3}]
    file.soon()
    assert len(jobs) == 1


def test_a_slow_background_write_never_overwrites_a_newer_one() -> None:
    written: list[int] = []
    begun, go_on = threading.Event(), threading.Event()
    state = {"n": 1}

    def save(table: dict[str, Any]) -> None:
        if table["n"] == 1:
            begun.set()
            assert go_on.wait(5)
        written.append(table["n"])

    file = TableFile(save, lambda: dict(state))
    background = threading.Thread(target=file.now)
    background.start()
    assert begun.wait(5)
    state["n"] = 2
    operator = threading.Thread(target=file.now)
    operator.start()
    go_on.set()
    background.join(5)
    operator.join(5)
    assert written == [1, 2]


def test_a_write_that_failed_is_tried_again_with_the_next_change() -> None:
    written: list[int] = []
    failures = [OSError("disk full")]

    def save(table: dict[str, Any]) -> None:
        if failures:
            raise failures.pop()
        written.append(table["n"])

    errors: list[BaseException] = []

    def submit(job: Callable[[], None]) -> None:
        try:
            job()
        except OSError as error:
            errors.append(error)

    file = TableFile(save, lambda: {"n": 7}, submit)
    file.soon()
    file.soon()
    assert (len(errors), written) == (1, [7])


def test_joined_texts_are_what_the_writer_would_have_written() -> None:
    table = {"a": {"x": 1, "m": {"k": "v"}, "e": {}}, 'q"uote': {"l": ["t"]}, "ä": {"s": 'a": b'}}
    texts = EntryTexts()
    for name, value in table.items():
        texts.put(name, value)
    texts.put("gone", {"x": 2})
    texts.pop("gone")
    joined = fastjson.dumps_pretty({"head": 1, "table": texts.joined()})
    assert joined == fastjson.dumps_pretty({"head": 1, "table": table})
    assert fastjson.dumps_pretty({"table": EntryTexts().joined()}) == fastjson.dumps_pretty({"table": {}})
