"""Store: every key, every script and the one Redis adapter. Knows core and nothing above it."""
