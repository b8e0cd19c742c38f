"""Hostile bytes against a running broker and name server."""

import pytest

# Their assertions should tell as much as those of a test.
pytest.register_assert_rewrite("tests.badinput.victim", "tests.badinput.hostile", "tests.crash.rawclient")
