"""Tests that run twice: with the C part of the store and with Python alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any
from unittest import mock

import pytest

from firearrow.store import accelerated
from firearrow.store.commitlog import log
from firearrow.store.key_index import file, index


@pytest.fixture(scope="module", params=["in C", "in Python"], autouse=True)
def both_ways(request: pytest.FixtureRequest) -> Iterator[None]:
    """Import it into a module of tests, and it is for all of them."""
    part: Any = accelerated.native if request.param == "in C" else None
    if part is None and request.param == "in C":
        pytest.skip("the C part was not built: there was no C compiler, or no Python.h, when the package was installed")
    with ExitStack() as stack:
        for module in (index, file, log):
            stack.enter_context(mock.patch.object(module, "native", part))
        yield
