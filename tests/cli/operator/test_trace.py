from __future__ import annotations

from firearrow.testing.sync import Cluster
from tests.cli.operator.kit import Firearrow, send


def test_message_without_trace_says_how_to_enable_tracing(firearrow: Firearrow, shared: Cluster) -> None:
    firearrow("topic", "create", "Untraced", "--queues", "1")
    (msg_id,) = send(shared, "Untraced", b"x")
    code, out, err = firearrow("trace", "show", msg_id)
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert "tracing is enabled in clients" in err
    code, _, err = firearrow("trace", "show", msg_id, "--trace-topic", "NoTraces")
    assert code == 1
    assert "no client has traced a message yet" in err
