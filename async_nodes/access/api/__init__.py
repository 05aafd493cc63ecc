"""Step 5, expose: the routes, a module for each area, and what they share."""
