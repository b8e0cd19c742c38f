from __future__ import annotations

from datetime import UTC, datetime, timedelta

import click
import pytest

from firearrow.cli.arguments import DURATION, PAIR, POSITION, TIME, ClusterForm, Number, did_you_mean


@pytest.mark.parametrize(
    ("text", "duration"),
    [
        ("500ms", timedelta(milliseconds=500)),
        ("3s", timedelta(seconds=3)),
        ("1.5s", timedelta(seconds=1.5)),
        ("10m", timedelta(minutes=10)),
        ("2h", timedelta(hours=2)),
        ("7d", timedelta(days=7)),
    ],
)
def test_duration_has_a_unit(text: str, duration: timedelta) -> None:
    assert DURATION.convert(text, None, None) == duration


@pytest.mark.parametrize("text", ["3", "s", "3 s", "-3s", "3w", "0s", "soon"])
def test_duration_without_unit_is_rejected(text: str) -> None:
    with pytest.raises(click.BadParameter, match="is not a duration; expected a number with a unit, such as 500ms, 3s"):
        DURATION.convert(text, None, None)


def test_position_is_a_word_a_time_an_age_or_an_offset() -> None:
    assert POSITION.convert("earliest", None, None) == "earliest"
    assert POSITION.convert("latest", None, None) == "latest"
    assert POSITION.convert("4711", None, None) == 4711
    assert POSITION.convert("2030-01-31T12:00:00+00:00", None, None) == datetime(2030, 1, 31, 12, tzinfo=UTC)
    position = POSITION.convert("2h", None, None)
    assert isinstance(position, datetime)
    assert timedelta(hours=2) <= datetime.now(UTC) - position < timedelta(hours=2, minutes=5)


@pytest.mark.parametrize("text", ["begin", "first", "yesterday", ""])
def test_other_positions_are_rejected(text: str) -> None:
    with pytest.raises(click.BadParameter, match="is not a position; expected earliest, latest, a time"):
        POSITION.convert(text, None, None)


def test_time_does_not_accept_a_bare_number() -> None:
    with pytest.raises(click.BadParameter, match="is not a time; expected one such as 2030-01-31T12:00:00"):
        TIME.convert("1700000000000", None, None)


def test_pair_keeps_everything_after_the_first_equals_sign() -> None:
    assert PAIR.convert(" messageDelayLevel =1s=2s", None, None) == ("messageDelayLevel", "1s=2s")
    for text in ("novalue", "=x", "a=b\nc=d"):
        with pytest.raises(click.BadParameter, match="is not of the form KEY=VALUE"):
            PAIR.convert(text, None, None)


@pytest.mark.parametrize(("text", "expected"), [("0", "1 or more"), ("x", "1 or more"), ("-1", "1 or more"), ("²", "1 or more")])
def test_number_out_of_range_names_the_limits(text: str, expected: str) -> None:
    with pytest.raises(click.BadParameter, match=expected):
        Number(1).convert(text, None, None)
    with pytest.raises(click.BadParameter, match="1 to 26"):
        Number(1, 26).convert("27", None, None)


def test_unknown_cluster_form_gets_a_suggestion() -> None:
    with pytest.raises(
        click.BadParameter, match=r"'dleger3' is not a cluster form; did you mean dledger-3\? expected one of 2m,"
    ):
        ClusterForm().convert("dleger3", None, None)


def test_suggestion_needs_a_similar_word() -> None:
    assert did_you_mean("--nosuch", ["--output", "--namesrv"]) == ""
    assert did_you_mean("--outptu=x", ["--output", "--namesrv"]) == "did you mean --output?"
    assert did_you_mean("Ordres", ["Orders", "Payments"]) == "did you mean Orders?"
