"""The web process of the asyncio libraries: Starlette on uvicorn with uvloop and httptools.

The same front as `flask_web`: ``POST /tasks {"node": NAME, "inputs": {…}}`` submits,
``GET /tasks/ID`` shows state and result.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, Final

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

BACKLOG: Final = 1024

Submit = Callable[[dict[str, Any]], Awaitable[str]]
"""Sends a task with these inputs and returns its id."""

Read = Callable[[str], Awaitable[tuple[str, Any]]]
"""Returns a task's state (PENDING, SUCCESS, FAILURE) and its result."""

Lifespan = Callable[[Any], AbstractAsyncContextManager[None]]
Connected = AsyncIterator[None]


def create_app(submits: Mapping[str, Submit], read: Read, lifespan: Lifespan) -> Starlette:
    """Return the app for these tasks by name; `lifespan` connects and disconnects."""

    async def submit(request: Request) -> JSONResponse:
        body = await request.json()
        send = submits.get(body["node"])
        if send is None:
            return JSONResponse({"error": "unknown node"}, 422)
        return JSONResponse({"task_id": await send(body["inputs"]), "state": "PENDING"}, 202)

    async def show(request: Request) -> JSONResponse:
        task_id = request.path_params["task_id"]
        state, result = await read(task_id)
        shown: dict[str, Any] = {"task_id": task_id, "state": state}
        if state != "PENDING":
            shown["result"] = result
        return JSONResponse(shown)

    routes = [
        Route("/tasks", submit, methods=["POST"]),
        Route("/tasks/{task_id}", show, methods=["GET"]),
    ]
    return Starlette(routes=routes, lifespan=lifespan)


def serve(submits: Mapping[str, Submit], read: Read, lifespan: Lifespan) -> None:
    """Serve on the port that the command line names, until SIGTERM."""
    uvicorn.run(
        create_app(submits, read, lifespan),
        host="127.0.0.1",
        port=int(sys.argv[1]),
        loop="uvloop",
        http="httptools",
        backlog=BACKLOG,
        log_level="warning",
        access_log=False,
    )
