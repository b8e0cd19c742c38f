"""The tests. Of modules that only help them, assertions should tell as much as those of a test."""

import pytest

pytest.register_assert_rewrite("tests.badinput.victim", "tests.badinput.hostile", "tests.support.raw_client")
