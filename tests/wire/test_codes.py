from __future__ import annotations

import pytest

from firearrow.wire.codes import LANGUAGE_CODES, LANGUAGES, TRUNCATED_CODES, VERSION, RequestCode, ResponseCode, version_ordinal


@pytest.mark.parametrize(
    ("version", "ordinal"),
    [((4, 5, 2), 317), ((4, 9, 3), 399), ((4, 9, 8), 409), ((5, 0, 0), 413), ((5, 3, 1), 475), ((5, 5, 0), 513)],
)
def test_versions_have_the_ordinals_seen_on_the_wire(version: tuple[int, int, int], ordinal: int) -> None:
    assert version_ordinal(*version) == ordinal
    assert VERSION == 513


def test_languages_have_apaches_numbers() -> None:
    assert (LANGUAGE_CODES["JAVA"], LANGUAGE_CODES["OTHER"], LANGUAGE_CODES["GO"], LANGUAGE_CODES["NODE_JS"]) == (0, 7, 9, 13)
    assert LANGUAGES[1] == "CPP"


def test_cut_codes_meet_no_other_code() -> None:
    assert TRUNCATED_CODES[3442] is RequestCode.POP_MESSAGE
    assert TRUNCATED_CODES[3543] is RequestCode.BATCH_ACK_MESSAGE
    assert not TRUNCATED_CODES.keys() & {int(code) for code in RequestCode}


def test_codes_are_plain_integers() -> None:
    assert int(RequestCode.SEND_MESSAGE_V2) == 310
    assert {21: "moved"}[ResponseCode.PULL_OFFSET_MOVED] == "moved"
    assert f"{ResponseCode.SUCCESS:d}" == "0"
