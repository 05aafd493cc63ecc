"""Submit and dispatch: from a request to one transaction and a message. Builds, never waits."""
