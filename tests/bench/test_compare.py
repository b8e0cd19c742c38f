"""Selection of loads by the comparison."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import compare
from bench.firearrow import Firearrow
from bench.process import BenchError
from bench.session import Session


def test_unknown_load_is_an_error_that_lists_the_loads(tmp_path: Path) -> None:
    session = Session(Firearrow(), None, rounds=1, seconds=1, quick=True, only=["teleport"], work=tmp_path)
    with pytest.raises(BenchError, match=r"no load has teleport in its name.*send 128B 64x1"):
        compare.run(session)
