"""Step 5, expose: what is held open. The hub, server-sent events, long polls, the feed."""
