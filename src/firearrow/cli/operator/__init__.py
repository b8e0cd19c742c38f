"""The administration commands, one module per noun. May import admin, client, wire and cli.local_cluster."""
