"""Step 5, expose: HTTP. Accepts requests and shows records; never runs a node."""
