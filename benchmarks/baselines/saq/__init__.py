"""saq + Starlette + uvicorn on Redis."""
