"""ArdiQ + Starlette + uvicorn on Redis."""
