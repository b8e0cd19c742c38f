from __future__ import annotations

import argparse

import pytest

from firearrow import __version__
from firearrow.cli.main import _understand, main


def understood(*words: str) -> argparse.Namespace:
    return _understand(words)


def test_up_has_defaults_for_everything() -> None:
    options = understood("up")
    assert vars(options) == {
        "command": "up",
        "data": "firearrow-data",
        "host": "127.0.0.1",
        "namesrv_port": 9876,
        "broker_port": 10911,
        "brokers": 1,
        "settings": [],
        "ready_file": None,
    }


def test_settings_keep_what_follows_the_first_equals_sign() -> None:
    options = understood("broker", "-n", "a:1;b:2", "-c", "b.conf", "--set", "x=1", "--set", " messageDelayLevel =1s=2s")
    assert options.settings == [("x", "1"), ("messageDelayLevel", "1s=2s")]
    assert (options.namesrv, options.config) == ("a:1;b:2", "b.conf")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["up", "--reddy-file", "x"], "unknown argument --reddy-file; did you mean --ready-file?"),
        (["up", "--namesrvport=1"], "unknown argument --namesrvport=1; did you mean --namesrv-port?"),
        (["broker", "--stop-with-paren"], "unknown argument --stop-with-paren"),
        (["namesrv", "extra"], "unknown argument extra"),
        (["up", "--dat", "x"], "unknown argument --dat; did you mean --data?"),
    ],
)
def test_a_word_that_is_not_known_gets_the_nearest(words: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(words)
    assert end.value.code == 2
    assert capsys.readouterr().err.splitlines()[0] == f"firearrow: {says}"


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["--version"])
    assert end.value.code == 0
    assert capsys.readouterr().out == f"firearrow {__version__}\n"
