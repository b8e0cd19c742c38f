from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firearrow.wire import fastjson
from firearrow.wire.errors import ProtocolError
from firearrow.wire.fastjson import ObjectMap
from tests.wire.captured import captured
from tests.wire.strategies import json_values

QUEUE = {"brokerName": "b", "queueId": 0, "topic": "T"}


def loads(text: bytes | str) -> Any:
    try:
        return fastjson.loads(text)
    except ProtocolError:
        return ProtocolError


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (b'{"a":1}', {"a": 1}),
        (b'{0:"x",1:"y"}', {"0": "x", "1": "y"}),
        (b"{-1:[1,2,],}", {"-1": [1, 2]}),
        (b"{'a':'it\\'s \"x\"'}", {"a": 'it\'s "x"'}),
        (b'{0:"\\u00e9\\n\\ud83d\\ude00\\/"}', {"0": "é\n\U0001f600/"}),
        (b"{0:-1.5e2, 1 : true ,2:false,3:null}", {"0": -150.0, "1": True, "2": False, "3": None}),
        (b'{"t":{{"queueId":0}:12,{"queueId":1}:{1:2}}}', {"t": [({"queueId": 0}, 12), ({"queueId": 1}, {"1": 2})]}),
        (b'\n{0:{}}\t', {"0": {}}),
        ("{0:'é'}", {"0": "é"}),
    ],
)  # fmt: skip
def test_dialect_of_apaches_library_is_parsed(text: bytes | str, value: Any) -> None:
    assert fastjson.loads(text) == value


def test_map_with_object_keys_becomes_an_object_map() -> None:
    table = fastjson.loads(b'{"t":{{"a":1}:2}}')["t"]
    assert isinstance(table, ObjectMap)
    assert table == [({"a": 1}, 2)]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"", "no value"),
        (b"{", "no value"),
        (b"{0:1", "no comma or closing brace"),
        (b"{0:1}x", "more text after"),
        (b"{0 1}", "no ':'"),
        (b"[1 2]", "no comma or closing bracket"),
        (b'{0:"x', "closing quote"),
        (b'{0:"\\x"}', "unknown escape"),
        (b'{0:"\\', "unknown escape"),
        (b'{0:"\\u12"}', "four hex digits"),
        (b'{0:"\\ud800"}', "surrogate"),
        (b'{0:1,{"a":1}:2}', "both text keys and object keys"),
        (b'{{{"a":1}:2}:3}', "itself has object keys"),
        (b"{0:1e999}", "beyond every double"),
        (b"{0:" + b"9" * 500 + b"}", "500 digits"),
        (b"\xff", "neither JSON nor UTF-8"),
        (b"{0:NaN}", "no value"),
        (b"{true:1}", "no value"),
    ],
)
def test_error_names_the_position(text: bytes, said: str) -> None:
    with pytest.raises(ProtocolError, match=said):
        fastjson.loads(text)


@pytest.mark.parametrize("opening", [b"[", b"{", b"{0:", b'{"a":', b"{0:[", b"[[{", b"{{"])
def test_nesting_is_limited(opening: bytes) -> None:
    with pytest.raises(ProtocolError):
        fastjson.loads(opening * 100_000)


def test_body_that_is_not_an_object_is_rejected() -> None:
    assert fastjson.loads_object(b"{0:1}") == {"0": 1}
    with pytest.raises(ProtocolError, match="holds a list, expected a JSON object"):
        fastjson.loads_object(b"[]")


# Text made of the tokens of the language gets further than random bytes.
TOKENS = st.lists(
    st.sampled_from(
        ["{", "}", "[", "]", ",", ":", '"a"', "'b'", '"', "'", "0", "-1", "1.5", "1e9", "true", "null", "\\", "\\u00", " ", "é"]
    ),
    max_size=25,
).map("".join)


@given(st.one_of(st.binary(max_size=60), TOKENS.map(str.encode), TOKENS, st.text(max_size=40)))
def test_any_text_yields_a_value_or_protocol_error(text: bytes | str) -> None:
    value = loads(text)
    if value is not ProtocolError:
        assert fastjson.loads(fastjson.dumps(value)) == value


@given(json_values())
def test_valid_json_is_parsed_as_json(value: Any) -> None:
    text = json.dumps(value)
    assert fastjson.loads(text) == value
    assert fastjson.loads(fastjson.dumps(value)) == value
    assert fastjson.loads(fastjson.dumps_pretty(value)) == value
    # The tolerant reader agrees with the strict one on what both can read.
    assert fastjson.loads("[" + text + ",]") == [value]


@given(st.dictionaries(st.integers(-(2**31), 2**31), json_values(4), max_size=4))
def test_integer_keys_can_be_bare_or_quoted(table: dict[int, Any]) -> None:
    read = {str(key): value for key, value in table.items()}
    assert fastjson.loads(fastjson.dumps(table)) == read
    assert fastjson.loads(fastjson.dumps(table, bare_int_keys=True)) == read


@given(st.integers(0, 10_000), st.lists(st.tuples(st.integers(0, 5000), st.integers(0, 255)), min_size=1, max_size=3))
def test_damaged_body_yields_a_value_or_protocol_error(which: int, damage: list[tuple[int, int]]) -> None:
    bodies = [sent.body for sent in captured() if sent.body[:1] == b"{"]
    text = bytearray(bodies[which % len(bodies)][:2000])
    for at, value in damage:
        text[at % len(text)] = value
    loads(bytes(text))


def test_keys_are_written_as_asked() -> None:
    value = {"addrs": {0: "a", 1: "b"}, "topics": {"7": 1}}
    assert fastjson.dumps(value) == b'{"addrs":{"0":"a","1":"b"},"topics":{"7":1}}'
    assert fastjson.dumps(value, bare_int_keys=True) == b'{"addrs":{0:"a",1:"b"},"topics":{"7":1}}'
    table = {"offsetTable": ObjectMap([(QUEUE, 5), ({**QUEUE, "queueId": 1}, [None, True, 1.0])])}
    assert fastjson.dumps(table) == (
        b'{"offsetTable":{{"brokerName":"b","queueId":0,"topic":"T"}:5,{"brokerName":"b","queueId":1,"topic":"T"}:[null,true,1.0]}}'
    )
    with pytest.raises(TypeError, match="a map key"):
        fastjson.dumps({(1, 2): 3}, bare_int_keys=True)


def test_configuration_files_look_like_apaches() -> None:
    table = {
        "dataVersion": {"counter": 1, "stateVersion": 0, "timestamp": 1794785449808},
        "empty": {},
        "groupTopicMap": {"G": ["T"], "H": []},
        "offsetTable": {"T@G": {0: 1250, 1: 151}},
        "positions": [82, 65],
    }
    assert fastjson.dumps_pretty(table).decode() == (
        '{\n\t"dataVersion":{\n\t\t"counter":1,\n\t\t"stateVersion":0,\n\t\t"timestamp":1794785449808\n\t},\n\t"empty":{},\n'
        '\t"groupTopicMap":{\n\t\t"G":[\n\t\t\t"T"\n\t\t],\n\t\t"H":[]\n\t},\n'
        '\t"offsetTable":{\n\t\t"T@G":{\n\t\t\t0:1250,\n\t\t\t1:151\n\t\t}\n\t},\n\t"positions":[82,65]\n}'
    )
    assert fastjson.dumps_pretty({"t": ObjectMap([({"q": 0}, 1)])}) == b'{\n\t"t":{\n\t\t{"q":0}:1\n\t}\n}'


def test_long_text_is_read_only_if_it_is_standard_json() -> None:
    standard = b'{"a":[' + b"1," * 50_000 + b"1]}"
    assert len(fastjson.loads(standard, max_tolerant_bytes=1_000)["a"]) == 50_001
    with pytest.raises(ProtocolError, match="at most 1000"):
        fastjson.loads(b"{'a':[" + b"1," * 1_000 + b"]}", max_tolerant_bytes=1_000)
    assert len(fastjson.loads(b"{'a':[" + b"1," * 1_000 + b"]}")["a"]) == 1_000
