"""The only room with sockets: listeners, connections, client channels, addresses."""
