"""Step 5, expose: the fast lane, which answers ordinary requests before Flask sees them."""
