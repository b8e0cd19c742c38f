"""The commands: `firearrow up`, `namesrv` and `broker` are servers, `send`, `consume` and `bench` are clients."""
