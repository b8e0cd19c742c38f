from __future__ import annotations

import inspect

import pytest

from firearrow.admin import aio, sync
from firearrow.client.errors import ClosedError
from firearrow.testing.sync import Cluster


def test_blocking_admin_has_every_method() -> None:
    coroutines = {name for name, value in vars(aio.AdminMethods).items() if isinstance(value, aio.AdminMethod)}
    assert coroutines
    assert {name for name in coroutines if not hasattr(sync.Admin, name)} == set()
    for name in coroutines:
        function = vars(aio.AdminMethods)[name].__wrapped__
        assert function.__name__ == name
        assert inspect.iscoroutinefunction(function)


def test_blocking_methods_return_results() -> None:
    with Cluster() as cluster:
        admin = sync.Admin(cluster.name_server)
        with admin:
            assert admin.create_topic("T", queues=2) == ["broker-a"]
            assert [one.queue_id for one in admin.topic_status("T")] == [0, 1]
        with pytest.raises(ClosedError):
            admin.topic_names()
