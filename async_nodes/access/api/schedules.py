"""Step 5, expose: the routes of schedules. Create, list, show, replace, pause, trigger, delete."""

from __future__ import annotations

import base64
import binascii
import re
from typing import TYPE_CHECKING, Final

from flask import Blueprint, Response, g, request

from async_nodes.access.api import query
from async_nodes.access.api.answers import (
    accept,
    body_of_request,
    idempotency_key,
    in_json,
    wait_seconds,
)
from async_nodes.access.guard import check_content_type
from async_nodes.core import strict_json
from async_nodes.core.errors import AsyncNodesError
from async_nodes.dispatch.firing import Firer
from async_nodes.dispatch.scheduler import Scheduler, document, upcoming
from async_nodes.dispatch.schedules import NAME_PATTERN
from async_nodes.storage.schedules import Schedules

if TYPE_CHECKING:
    from async_nodes.access.services import Provider, Services
    from async_nodes.nodes import Registry
    from async_nodes.settings import Settings
    from async_nodes.storage.schedules import StoredSchedule

MOST: Final = 200
USUAL: Final = 50
_NAME: Final = re.compile(NAME_PATTERN, re.ASCII)
_ETAG: Final = re.compile(r'"([1-9][0-9]{0,14})"', re.ASCII)


def blueprint(settings: Settings, provider: Provider, nodes: Registry) -> Blueprint:
    """Return the routes under ``/v1/schedules``."""
    made = Blueprint("schedules", __name__)
    area = _Area(settings, provider, nodes)
    one = "/v1/schedules/<name>"

    @made.post("/v1/schedules")
    def create_schedule() -> Response:
        return area.create()

    @made.get("/v1/schedules")
    def list_schedules() -> Response:
        return show_all(provider())

    @made.get(one)
    def show_schedule(name: str) -> Response:
        return _shown(area.scheduler(name).find(name, tenant=g.tenant))

    @made.put(one)
    def replace_schedule(name: str) -> Response:
        return area.replace(name)

    @made.delete(one)
    def delete_schedule(name: str) -> Response:
        area.scheduler(name).delete(name, tenant=g.tenant, version=_version())
        return Response(status=204)

    @made.post(f"{one}/pause")
    def pause_schedule(name: str) -> Response:
        _check_empty_body("pausing")
        return _shown(area.scheduler(name).pause(name, tenant=g.tenant))

    @made.post(f"{one}/resume")
    def resume_schedule(name: str) -> Response:
        _check_empty_body("resuming")
        return _shown(area.scheduler(name).resume(name, tenant=g.tenant))

    @made.post(f"{one}/trigger")
    def trigger_schedule(name: str) -> Response:
        return area.trigger(name)

    return made


class _Area:
    """Make what the routes work with; the services may not be there yet."""

    def __init__(self, settings: Settings, provider: Provider, nodes: Registry) -> None:
        self._settings = settings
        self._provider = provider
        self._nodes = nodes

    def scheduler(self, name: str | None = None) -> Scheduler:
        """Return what keeps the schedules, unless the name is none."""
        if name is not None:
            _check_name(name)
        schedules = Schedules(self._provider().store)
        return Scheduler(schedules, self._nodes, self._settings, base=g.base)

    def create(self) -> Response:
        """Make a schedule: 201."""
        check_content_type(request.content_type)
        stored = self.scheduler().create(body_of_request(), tenant=g.tenant)
        response = _shown(stored, 201)
        response.headers["Location"] = f"{g.base}/v1/schedules/{stored.name}"
        return response

    def replace(self, name: str) -> Response:
        """Give a schedule another definition."""
        check_content_type(request.content_type)
        scheduler, version = self.scheduler(name), _version()
        raw = body_of_request()
        return _shown(scheduler.replace(name, raw, tenant=g.tenant, version=version))

    def trigger(self, name: str) -> Response:
        """Send a schedule's task now: 202, or 200 when it ended while the client waits."""
        _check_name(name)
        seconds, key = wait_seconds(), idempotency_key()
        _check_empty_body("triggering")
        services = self._provider()
        firer = Firer(
            Schedules(services.store),
            services.ids,
            self._nodes,
            self._settings,
            admit=services.admission.check,
        )
        done = firer.trigger(g.tenant, name, key=key, traceparent=g.traceparent)
        return accept(services, done, seconds)


def show_all(services: Services) -> Response:
    """List a tenant's schedules by name."""
    query.refuse_unknown(("limit", "cursor"))
    most = query.number("limit", least=1, most=MOST, default=USUAL)
    after = _after(query.text("cursor", longest=128) or "")
    found, more = Schedules(services.store).page(g.tenant, after=after, most=most)
    following = _cursor(found[-1].name) if more and found else None
    shown = [document(one, base=g.base) for one in found]
    return in_json({"schedules": shown, "next": following})


def _shown(stored: StoredSchedule, status: int = 200) -> Response:
    """Show a schedule with its ticks to come; the ETag is that of its definition."""
    members = {**document(stored, base=g.base), "preview": upcoming(stored)}
    return in_json(members, status, {"ETag": f'"{stored.version}"'})


# -- what the request says -------------------------------------------------------------------------


def _check_name(name: str) -> None:
    if not _NAME.fullmatch(name):
        raise AsyncNodesError("schedule_not_found", "this is not a schedule's name")


def _version() -> int | None:
    """Return the version that the client has read, None where it does not say; `*` is any."""
    given = request.headers.get("If-Match", "").strip()
    if given in {"", "*"}:
        return None
    found = _ETAG.fullmatch(given)
    if found is None:
        raise AsyncNodesError("bad_request", "If-Match must be one ETag of the schedule, or *")
    return int(found[1])


def _check_empty_body(doing: str) -> None:
    """A body may be there for clients that send one."""
    raw = body_of_request()
    if not raw:
        return
    check_content_type(request.content_type)
    if strict_json.loads(raw) != {}:
        raise AsyncNodesError("invalid_request", f"{doing} takes no fields", pointer="")


def _cursor(name: str) -> str:
    return base64.urlsafe_b64encode(name.encode()).decode().rstrip("=")


def _after(cursor: str) -> str:
    """Return the name that a cursor stands for, empty for none."""
    if not cursor:
        return ""
    try:
        padded = cursor.encode("ascii") + b"=" * (-len(cursor) % 4)
        name = base64.b64decode(padded, b"-_", validate=True).decode()
    except (ValueError, binascii.Error):
        name = ""
    if not _NAME.fullmatch(name):
        query.refuse("cursor", "cursor is not one that a list has answered")
    return name
