"""Custom headers of requests and responses, by the peers that exchange them: `client`, `admin`, `namesrv`.

Imports only from `wire`.
"""
