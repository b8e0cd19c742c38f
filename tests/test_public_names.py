"""The public names of the package and the cost of importing it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import firearrow


@pytest.mark.parametrize("name", firearrow.__all__)
def test_every_public_name_exists_for_type_checkers_too(name: str) -> None:
    assert getattr(firearrow, name).__name__ == name
    assert name in dir(firearrow)
    source = Path(firearrow.__file__).read_text()
    assert f"import {name} as {name}\n" in source


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Nonsense'"):
        _ = firearrow.Nonsense  # type: ignore[attr-defined]


def test_messages_need_no_event_loop() -> None:
    code = "import sys, firearrow as fa; fa.Message('T', b'x'); print('asyncio' in sys.modules, 'numpy' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert found.stdout.strip() == "False False"


def test_the_package_can_be_run() -> None:
    found = subprocess.run(
        [sys.executable, "-m", "firearrow", "--version"], capture_output=True, text=True, check=True, timeout=60
    )
    assert found.stdout.strip() == f"firearrow {firearrow.__version__}"


def test_clients_of_both_kinds_have_the_same_names() -> None:
    import firearrow.aio as aio

    for name in aio.__all__:
        assert hasattr(firearrow, name)


def test_aio_needs_no_import_of_its_own() -> None:
    code = "import firearrow as fa; print(fa.aio.Producer.__module__, 'aio' in dir(fa))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert found.stdout.strip() == "firearrow.client.producer.producer True"
