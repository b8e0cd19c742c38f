from __future__ import annotations

from tests.cli.messages.kit import firearrow, objects


def test_lines_and_whole_input_are_sent(name_server: str) -> None:
    code, out, err = firearrow(name_server, "send", "T", "-o", "json", "--repeat", "2", stdin=b"one\n\ntwo\r\nthree")
    assert (code, err) == (0, "")
    assert [result["status"] for result in objects(out)] == ["SEND_OK"] * 6

    code, out, err = firearrow(name_server, "send", "T", "-", stdin=b"all\nof it\n")
    assert (code, len(out.splitlines())) == (0, 1)

    code, out, err = firearrow(name_server, "consume", "T", "--body", "--wait", "1s")
    assert (code, err) == (0, "")
    assert sorted(out.splitlines()) == sorted(["one", "two", "three"] * 2 + ["all", "of it", ""])


def test_failure_is_one_line(name_server: str) -> None:
    code, out, err = firearrow(name_server, "consume", "Nowhere", "--count", "1")
    assert (code, out) == (1, "")
    assert err.startswith("firearrow consume: no route to the topic 'Nowhere'")
    assert err.count("\n") == 1

    code, out, err = firearrow("127.0.0.1:1", "send", "T", "x", "--timeout", "500ms")
    assert (code, out) == (1, "")
    assert "127.0.0.1:1" in err
    assert err.count("\n") == 1

    code, out, err = firearrow(name_server, "send", "T", "x", "--access-key", "a")
    assert (code, out) == (2, "")
    assert err == "firearrow send: --access-key is given, but the environment variable FIREARROW_SECRET_KEY is not set\n"
