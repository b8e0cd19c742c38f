"""Arguments of the command."""

from __future__ import annotations

import pytest

from bench import run


@pytest.mark.parametrize("arguments", [["--rounds", "0"], ["--seconds", "0"], ["--seconds", "x"], ["speed"], ["--ours", "other"]])
def test_invalid_arguments_are_rejected(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        run.main(arguments)
    assert ended.value.code == 2
