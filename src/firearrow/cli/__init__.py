"""The commands: `firearrow up`, `firearrow namesrv`, `firearrow broker`."""
