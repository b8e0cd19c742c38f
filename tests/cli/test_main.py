from __future__ import annotations

import argparse
from datetime import UTC, datetime, timedelta

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
        "cluster": None,
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
        (["send", "T", "x", "--delai", "3"], "unknown argument --delai; did you mean --delay?"),
        (["consume", "T", "--tag", "x"], "unknown argument --tag; did you mean --tags?"),
        (["bench", "send", "--inflight", "3"], "unknown argument --inflight; did you mean --in-flight?"),
    ],
)
def test_a_word_that_is_not_known_gets_the_nearest(words: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(words)
    assert end.value.code == 2
    assert capsys.readouterr().err == f"firearrow: {says}\n"


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["--version"])
    assert end.value.code == 0
    assert capsys.readouterr().out == f"firearrow {__version__}\n"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["send"], "the following arguments are required: TOPIC"),
        (["send", "T", "x", "--delay", "soon"], "argument --delay: 'soon' is not a number of seconds"),
        (["send", "T", "x", "--delay-level", "19"], "argument --delay-level: '19' is not a delay level; expected 1 to 18"),
        (["send", "T", "x", "--delay", "1", "--delay-level", "2"], "argument --delay-level: not allowed with argument --delay"),
        (["send", "T", "x", "--property", "n"], "argument --property: 'n' is not of the form NAME=VALUE"),
        (["send", "T", "x", "--repeat", "0"], "argument --repeat: '0' is not a number; expected 1 or more"),
        (
            ["consume", "T", "--from", "yesterday"],
            "argument --from: 'yesterday' is not a place to begin; expected first, last, a time like 2030-01-31T12:00:00 or an "
            "age like 10m",
        ),
        (["bench", "walk"], "argument what: invalid choice: 'walk' (choose from 'send', 'consume')"),
        (["bench", "sned"], "argument what: invalid choice: 'sned' (choose from 'send', 'consume'); did you mean send?"),
    ],
)
def test_what_the_client_commands_cannot_do_is_said(words: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(words)
    assert end.value.code == 2
    assert capsys.readouterr().err == f"firearrow: {says}\n"


def test_where_to_begin_is_a_word_a_time_or_an_age() -> None:
    assert understood("consume", "T", "--from", "last").start == "last"
    assert understood("consume", "T", "--from", "2030-01-31T12:00:00+00:00").start == datetime(2030, 1, 31, 12, tzinfo=UTC)
    start = understood("consume", "T", "--from", "2h").start
    age = datetime.now(UTC) - start
    assert timedelta(hours=2) <= age < timedelta(hours=2, minutes=5)


def test_the_name_server_is_taken_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    assert understood("consume", "T").name_server == "127.0.0.1:9876"
    monkeypatch.setenv("NAMESRV_ADDR", "a:1;b:2")
    assert understood("consume", "T").name_server == "a:1;b:2"
    assert understood("consume", "T", "-n", "c:3").name_server == "c:3"
