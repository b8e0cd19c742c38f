from __future__ import annotations

from pathlib import Path

import pytest

from firearrow.spark.errors import SparkOptionError
from firearrow.spark.options import read_options, write_options
from tests.support.certificates import CERTIFICATE, KEY

LIVE = {"nameServer": "127.0.0.1:9876", "subscribe": "Orders"}


def test_names_are_case_insensitive_and_aliases_are_accepted() -> None:
    options = read_options({"NAMESRVADDR": "a:1;b:2", "topic": "Orders", "FailOnDataLoss": "FALSE", "group": "g"})

    assert options.client().name_servers == ("a:1", "b:2")
    assert options["subscribe"] == ("Orders",)
    assert options["failOnDataLoss"] is False
    assert options["consumerGroup"] == "g"


def test_sizes_durations_and_times_are_parsed() -> None:
    options = read_options(
        {**LIVE, "maxBytesPerTrigger": "4m", "maxTriggerDelay": "2h", "startingTimestamp": "2026-01-01T00:00:00Z"}
    )

    assert options["maxBytesPerTrigger"] == 4 << 20
    assert options["maxTriggerDelay"] == 7_200_000
    assert options["startingTimestamp"] == 1_767_225_600_000


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({**LIVE, "maxOffsetPerTriger": "1"}, "unknown option 'maxOffsetPerTriger'; did you mean maxOffsetsPerTrigger?"),
        ({**LIVE, "zzz": "1"}, "unknown option 'zzz'; docs/spark lists them all"),
        ({**LIVE, "sendBatchBytes": "1m"}, "option sendBatchBytes is not for a query that reads"),
        ({**LIVE, "pullBatchSize": "-3"}, "option pullBatchSize is '-3', expected a whole number above 0"),
        ({**LIVE, "startingOffsets": "first"}, None),
        ({**LIVE, "startingOffsets": "group"}, "startingOffsets is group: name the group with consumerGroup"),
        ({**LIVE, "subscribePattern": "a.*"}, "subscribe and subscribePattern are mutually exclusive: give one of them"),
        ({**LIVE, "nameServer": "nowhere"}, None),
        ({"subscribe": "Orders"}, "option nameServer is missing: host:port of a name server (or path, for a store directory)"),
        ({"nameServer": "a:1"}, "nothing to read: give subscribe (topics), subscribePattern or assign"),
        ({**LIVE, "path": "/x"}, "path and nameServer are mutually exclusive: give one of them"),
        ({"path": "/x", "startingOffsets": "earliest"}, "option startingOffsets is not for store files (path)"),
        ({**LIVE, "accessKey": "a"}, "accessKey and secretKey must be given together"),
        ({**LIVE, "subscribePattern": "("}, None),
        ({**LIVE, "pushFilter": "true"}, "unknown option 'pushFilter'; did you mean pushFilters?"),
        ({**LIVE, "pushFilters": "yes"}, "option pushFilters is 'yes', expected true or false"),
        ({**LIVE, "pullMaxBytes": "0"}, "option pullMaxBytes is '0', expected a number of bytes such as 1048576, 512k, 4m or 1g"),
        ({**LIVE, "commitOffsets": "always"}, "option commitOffsets is 'always', expected none or progress"),
        ({**LIVE, "commitOffsets": "progress"}, "commitOffsets is progress: name the group with consumerGroup"),
        ({**LIVE, "includeTransactions": "true"}, "option includeTransactions is only for store files (path)"),
        ({**LIVE, "startingOffsetsByTimestampStrategy": "first"},
         "option startingOffsetsByTimestampStrategy is 'first', expected latest or error"),
        ({**LIVE, "maxInFlight": "3"}, "option maxInFlight is not for a query that reads"),
        ({"path": "/x", "brokerAddressMap": "{}"}, "option brokerAddressMap is not for store files (path)"),
        ({"path": "/x", "pullMaxBytes": "1m"}, "option pullMaxBytes is not for store files (path)"),
    ],
)  # fmt: skip
def test_invalid_option_is_reported_in_one_line(given: dict[str, str], expected: str | None) -> None:
    with pytest.raises(SparkOptionError) as error:
        read_options(given)

    assert "\n" not in str(error.value)
    assert expected is None or str(error.value) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{", "a JSON object ("),
        ("[]", "a JSON object"),
        ('{"Orders": 5}', "times by queue such as"),
        ('{"Orders":{"a":{"0":"yesterday"}}}', "milliseconds since 1970, or a time such as"),
    ],
)
@pytest.mark.parametrize("option", ["startingOffsetsByTimestamp", "endingOffsetsByTimestamp"])
def test_invalid_times_by_queue_are_rejected(option: str, text: str, expected: str) -> None:
    with pytest.raises(SparkOptionError) as error:
        read_options({**LIVE, option: text})

    assert str(error.value).startswith(f"option {option} is {text!r}, expected ")
    assert expected in str(error.value)


def test_times_by_queue_are_parsed() -> None:
    given = '{"Orders":{"a":{"0":1767225600000,"1":"2026-01-01T00:00:00Z"}}}'

    assert read_options({**LIVE, "startingOffsetsByTimestamp": given})["startingOffsetsByTimestamp"] == {
        "Orders": {"a": {"0": 1_767_225_600_000, "1": 1_767_225_600_000}}
    }


def test_broker_address_map_is_parsed() -> None:
    options = read_options({**LIVE, "brokerAddressMap": '{"10.0.0.5:10911":"localhost:30911"}'})

    assert options.client().broker_addresses == (("10.0.0.5:10911", "localhost:30911"),)
    for wrong in ('{"10.0.0.5":"a:1"}', '{"a:1":"b:2;c:3"}', '{"a:1":5}', '{"a:1":""}', "a:1=b:2"):
        with pytest.raises(SparkOptionError, match=r"option brokerAddressMap is .* expected a JSON object"):
            read_options({**LIVE, "brokerAddressMap": wrong})


def test_writer_options() -> None:
    where = {"nameServer": "a:1"}
    options = write_options({**where, "maxInFlight": "3", "sendTimeoutMs": "500", "idempotent": "true"})

    assert (options["maxInFlight"], options["sendTimeoutMs"], options["idempotent"]) == (3, 500, "true")
    assert options.client().request_timeout_ms == 500
    for wrong, expected in (
        ({"maxInFlight": "0"}, "option maxInFlight is '0', expected a whole number above 0"),
        ({"sendTimeoutMs": "1s"}, "option sendTimeoutMs is '1s', expected a whole number above 0"),
        ({"maxInFlights": "1"}, "unknown option 'maxInFlights'; did you mean maxInFlight?"),
        ({"pushFilters": "true"}, "option pushFilters is not for a query that writes"),
    ):
        with pytest.raises(SparkOptionError) as error:
            write_options({**where, **wrong})
        assert str(error.value) == expected


def test_stream_options_are_rejected_for_batches_and_vice_versa() -> None:
    with pytest.raises(SparkOptionError, match="endingOffsets is only for batch queries"):
        read_options({**LIVE, "endingOffsets": "latest"}, stream=True)
    for only_batch in ({"endingOffsetsByTimestamp": "{}"}, {"pushFilters": "true"}):
        with pytest.raises(SparkOptionError, match="is only for batch queries"):
            read_options({**LIVE, **only_batch}, stream=True)
    with pytest.raises(SparkOptionError, match="commitOffsets is only for streams"):
        read_options({**LIVE, "commitOffsets": "progress", "consumerGroup": "g"}, stream=False)
    with pytest.raises(SparkOptionError, match="maxOffsetsPerTrigger is only for streams"):
        read_options({**LIVE, "maxOffsetsPerTrigger": "1"}, stream=False)
    with pytest.raises(SparkOptionError, match="batch queries only"):
        read_options({"path": "/x"}, stream=True)
    assert read_options({**LIVE, "checkpointLocation": "/x"}, stream=True)["maxOffsetsPerTrigger"] == 1_000_000


def test_credentials_are_read_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    path.write_text('{"accessKey": "me", "secretKey": "secret"}')

    credentials = write_options({"nameServer": "a:1", "credentialsFile": str(path)}).client().credentials

    assert credentials is not None
    assert (credentials.access_key, credentials.secret_key) == ("me", "secret")
    with pytest.raises(SparkOptionError, match="credentialsFile"):
        write_options({"nameServer": "a:1", "credentialsFile": str(tmp_path / "none.json")})


def test_tls_options_are_passed_to_the_client(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text(CERTIFICATE)
    (tmp_path / "key.pem").write_text(KEY)
    (tmp_path / "password").write_text("hidden\n")
    files = {"tlsCa": "ca.pem", "tlsCert": "ca.pem", "tlsKey": "key.pem", "tlsKeyPasswordFile": "password"}

    client = write_options({"nameServer": "a:1", **{name: str(tmp_path / file) for name, file in files.items()}}).client()

    assert client.tls_ca == client.tls_cert == str(tmp_path / "ca.pem")
    assert client.tls_key_password == "hidden"
    assert client.tls_context() is not None
    assert "hidden" not in repr(client)


def test_unusable_tls_options_are_named() -> None:
    with pytest.raises(SparkOptionError, match="tls_ca is '/does/not/exist'"):
        write_options({"nameServer": "a:1", "tlsCa": "/does/not/exist"})
    with pytest.raises(SparkOptionError, match="option tlsKeyPasswordFile is '/does/not/exist'"):
        write_options({"nameServer": "a:1", "tlsKeyPasswordFile": "/does/not/exist"})
