"""Access control of the broker: the rules for its requests, and the requests that manage users and policies."""
