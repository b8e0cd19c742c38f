from __future__ import annotations

from hypothesis import settings

# No deadline: a busy machine is not a failure.
settings.register_profile("firearrow", deadline=None)
settings.load_profile("firearrow")
