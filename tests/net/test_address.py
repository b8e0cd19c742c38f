import socket

import pytest

from firearrow.net.address import (
    advertised_ip,
    bind,
    bind_pair,
    format_address,
    is_loopback,
    parse_address,
    parse_address_list,
    unmapped,
)


@pytest.mark.parametrize(
    ("text", "parsed"),
    [("127.0.0.1:9876", ("127.0.0.1", 9876)), (" ns.example:1 ", ("ns.example", 1)), ("[::1]:65535", ("::1", 65535))],
)
def test_address_is_split_into_host_and_port(text: str, parsed: tuple[str, int]) -> None:
    assert parse_address(text) == parsed
    assert format_address(*parsed) == text.strip()


@pytest.mark.parametrize("text", ["", "9876", ":9876", "host:", "host:0", "host:65536", "host:-1", "host:x", "host:٣"])
def test_invalid_address_is_named_in_the_error(text: str) -> None:
    with pytest.raises(ValueError, match="host:port"):
        parse_address(text)


def test_address_list_keeps_order_and_drops_duplicates() -> None:
    assert parse_address_list("b:2; a:1;;b:2;") == ["b:2", "a:1"]


@pytest.mark.parametrize(
    ("ip", "plain"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("::FFFF:10.0.0.1", "10.0.0.1"),
        ("::1", "::1"),
        ("fe80::1%eth0", "fe80::1"),
        ("::ffff:1", "::ffff:1"),
    ],
)
def test_ipv4_mapped_ipv6_becomes_ipv4(ip: str, plain: str) -> None:
    assert unmapped(ip) == plain


def test_port_0_finds_a_pair_two_apart() -> None:
    main, fast = bind_pair("127.0.0.1", 0)
    with main, fast:
        assert main.getsockname()[1] - fast.getsockname()[1] == 2


def test_port_in_use_is_named_in_the_error() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match=f"cannot listen on 127.0.0.1:{port}"):
            bind("127.0.0.1", port)
        with pytest.raises(OSError, match=f"cannot listen on 127.0.0.1:{port}"):
            bind_pair("127.0.0.1", port + 2)


def test_port_without_space_for_the_fast_port_is_rejected() -> None:
    with pytest.raises(OSError, match="no room for the fast port"):
        bind_pair("127.0.0.1", 2)


def test_wildcard_is_never_advertised() -> None:
    assert advertised_ip("127.0.0.1") == "127.0.0.1"
    assert advertised_ip("broker.example") == "broker.example"
    for wildcard in ("0.0.0.0", "::", ""):
        socket.inet_aton(advertised_ip(wildcard))
        assert advertised_ip(wildcard) != "0.0.0.0"


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "localhost", "::1", "[::1]", "::ffff:127.0.0.1"])
def test_loopback_addresses(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize(
    "host", ["", "0.0.0.0", "::", "10.0.0.1", "127.0.0.1.example.org", "128.0.0.1", "broker-a", "::ffff:10.0.0.1"]
)
def test_addresses_beyond_loopback(host: str) -> None:
    assert not is_loopback(host)
