"""Access control: users, policies, signatures, and the decision about a request. No sockets, no clock.

The vocabulary is that of Apache's ACL 2.0. `settings.py` has the settings of every server.
"""
