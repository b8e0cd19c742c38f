"""`firearrow send`, `consume` and `bench`: commands that are clients. May import client, admin, net and wire."""
