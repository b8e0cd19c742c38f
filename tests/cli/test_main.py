from __future__ import annotations

import subprocess
import sys

import pytest

from firearrow import __version__
from firearrow.cli.main import COMMANDS, firearrow, main, run

HEAVY = {"asyncio", "numpy", "orjson", "rich", "uvloop"}


def test_firearrow_alone_prints_an_overview(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([]) == 0
    out = capsys.readouterr().out
    assert all(f"\n  {name} " in out for name in COMMANDS)
    assert "firearrow send Orders hello --tag new" in out


def test_overview_imports_no_command() -> None:
    code = (
        "import sys; from firearrow.cli.main import run; run([]); run(['--version']);"
        f"print(sorted({{name.split('.')[0] for name in sys.modules}} & {HEAVY!r}), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stderr == "[]\n"


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_command_has_help(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([name, "--help"]) == 0
    assert capsys.readouterr().out.startswith(f"Usage: firearrow {name} ")


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["--version"])
    assert end.value.code == 0
    assert capsys.readouterr().out == f"firearrow {__version__}\n"


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ("up --reddy-file x", "firearrow up: no such option --reddy-file; did you mean --ready-file?"),
        ("up --namesrvport=1", "firearrow up: no such option --namesrvport; did you mean --namesrv-port?"),
        ("up --nosuch", "firearrow up: no such option --nosuch; see firearrow up -h"),
        ("broker --stop-with-paren", "firearrow broker: no such option --stop-with-paren; see firearrow broker -h"),
        ("namesrv extra", "firearrow namesrv: got unexpected extra argument (extra)"),
        ("send", "firearrow send: missing argument 'TOPIC'"),
        ("send T x --delai 3s", "firearrow send: no such option --delai; did you mean --delay?"),
        (
            "send T x --delay 3",
            "firearrow send: invalid value for '--delay': '3' is not a duration; expected a number with a unit",
        ),
        (
            "send T x --delay-level 19",
            "firearrow send: invalid value for '--delay-level': '19' is out of range; expected a whole",
        ),
        ("send T x --delay 1s --delay-level 2", "firearrow send: --delay and --delay-level exclude each other"),
        ("send T x --property n", "firearrow send: invalid value for '--property': 'n' is not of the form KEY=VALUE"),
        ("consume T --from yesterday", "firearrow consume: invalid value for '--from': 'yesterday' is not a position; expected"),
        ("consume T --tag a --sql b", "firearrow consume: --tag and --sql exclude each other"),
        ("consume T --from 3 --group g", "firearrow consume: --from OFFSET and --group exclude each other"),
        ("bench sned", "firearrow bench: no such command 'sned'; did you mean send?"),
        ("bench send --inflight 3", "firearrow bench send: no such option --inflight; did you mean --in-flight?"),
        ("bench send --duration 1s --messages 2", "firearrow bench send: --duration and --messages exclude each other"),
        ("launch", "firearrow: no such command 'launch'; see firearrow --help"),
        ("topik list", "firearrow: no such command 'topik'; did you mean topic?"),
        ("completion csh", "firearrow completion: invalid value for 'SHELL': 'csh' is not one of 'bash', 'zsh', 'fish'"),
    ],
)
def test_invalid_usage_is_one_line_with_exit_code_2(words: str, error: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(words.split()) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(error)
    assert err.count("\n") == 1


def test_missing_subcommand_prints_the_help_of_the_group(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["topic"]) == 2
    assert capsys.readouterr().err.startswith("Usage: firearrow topic [OPTIONS] COMMAND")


def test_options_may_stand_between_arguments(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["send", "Orders", "--tag", "new", "hello", "-n", "127.0.0.1:1", "--timeout", "100ms"]
    assert run(words) == 1
    assert "127.0.0.1:1" in capsys.readouterr().err


def test_help_lists_only_options_that_apply(capsys: pytest.CaptureFixture[str]) -> None:
    run(["cluster", "kill", "--help"])
    out = capsys.readouterr().out
    assert "--data" in out
    assert not any(option in out for option in ("--namesrv", "--tls", "--timeout", "--access-key"))


def test_namesrv_comes_from_the_option_or_the_environment(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("NAMESRV_ADDR", "127.0.0.1:1")
    assert run(["topic", "list"]) == 1
    assert "127.0.0.1:1" in capsys.readouterr().err
    assert run(["topic", "list", "-n", "127.0.0.1:2"]) == 1
    assert "127.0.0.1:2" in capsys.readouterr().err


def test_the_command_tree_is_complete() -> None:
    context = firearrow.make_context("firearrow", [])
    assert all(firearrow.get_command(context, name) is not None for name in COMMANDS)
