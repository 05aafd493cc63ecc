"""taskiq + Starlette + uvicorn on Redis."""
