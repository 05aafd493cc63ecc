"""Submit and dispatch: from a validated request to one transaction and a message. Builds, never waits."""
