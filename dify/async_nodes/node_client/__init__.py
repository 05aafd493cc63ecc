"""What the tools share: one client of the service, how a call waits, what it gives to Dify."""
