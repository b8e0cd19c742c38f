from __future__ import annotations

from typing import Any

import pytest

from firearrow.namesrv.kv_config import KvConfig


def test_value_is_found_until_it_is_deleted() -> None:
    config = KvConfig()
    assert config.get("N", "k") is None
    assert config.namespace("N") is None
    config.put("N", "k", "1")
    config.put("N", "k", "2")
    assert config.get("N", "k") == "2"
    assert config.namespace("N") == {"k": "2"}
    assert config.delete("N", "k")
    assert not config.delete("N", "k")
    assert not config.delete("Never", "k")
    assert config.namespace("N") == {}


def test_file_format_round_trips() -> None:
    config = KvConfig()
    config.put("N", "k", "v")
    assert config.to_json() == {"configTable": {"N": {"k": "v"}}}
    assert KvConfig.from_json(config.to_json()).get("N", "k") == "v"
    assert KvConfig.from_json({}).to_json() == {"configTable": {}}


@pytest.mark.parametrize("value", [{"configTable": []}, {"configTable": {"N": "k"}}, {"configTable": 1}])
def test_other_json_shapes_are_rejected(value: Any) -> None:
    with pytest.raises(ValueError, match="configTable"):
        KvConfig.from_json(value)
