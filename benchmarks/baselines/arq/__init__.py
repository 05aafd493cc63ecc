"""arq + Starlette + uvicorn on Redis."""
