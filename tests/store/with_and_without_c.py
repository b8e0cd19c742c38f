"""Fixture that runs the tests of a module twice: with native code and with Python only."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any
from unittest import mock

import pytest

from firearrow.store import accelerated
from firearrow.store.commitlog import log, verification
from firearrow.store.key_index import file, index


@pytest.fixture(scope="module", params=["native", "python"], autouse=True)
def with_and_without_c(request: pytest.FixtureRequest) -> Iterator[None]:
    """Apply to all tests of the modules that import it."""
    native: Any = accelerated.native if request.param == "native" else None
    if native is None and request.param == "native":
        pytest.skip("native code was not built: no C compiler or no Python.h at installation")
    with ExitStack() as stack:
        for module in (index, file, log, verification):
            stack.enter_context(mock.patch.object(module, "native", native))
        yield
