"""Step 5, expose: the OpenAPI 3.1 document, built from the tables that do the work.

`document.py` puts it together from one module per area of routes; `pieces.py` (operations) and
`shapes.py` (schemas) hold what they are built of. Fields of requests come from their validation,
problems from the catalogue, states from the state machine; a test holds the paths to the app's
own routes.
"""
