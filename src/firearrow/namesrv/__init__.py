"""The name server: which brokers there are, which topics they hold, and a small table of key-value configuration."""
