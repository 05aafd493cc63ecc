"""Step 5, expose: what the routes work with, put together once per process."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from async_nodes.access.streams.events import Events
from async_nodes.core.ids import IdSource
from async_nodes.dispatch.submit import Submitter
from async_nodes.nodes import Registry
from async_nodes.settings import Settings
from async_nodes.storage.controls import Admission
from async_nodes.storage.files import Files
from async_nodes.storage.redis_store import RedisStore


@dataclass(frozen=True, slots=True)
class Services:
    """Hold the store and what is built on it.

    Attributes:
        store: the tasks.
        hub: the events of watched tasks.
        ids: recognises ids of ours.
        submitter: accepts tasks.
        admission: what the submitter asks whether a queue or node takes new ones.
        clock: seconds since 1970; what the age of an id is compared with.

    """

    store: RedisStore
    hub: Events
    ids: IdSource
    submitter: Submitter
    admission: Admission
    clock: Callable[[], float] = time.time

    @classmethod
    def assemble(
        cls,
        settings: Settings,
        store: RedisStore,
        hub: Events,
        nodes: Registry,
        *,
        clock: Callable[[], float] = time.time,
        base: str = "",
    ) -> Services:
        """Return the services over an open store; `base` is what our addresses begin with.

        Raises:
            StoreUnavailable: the store does not give the secret of the ids.

        """
        ids = store.id_source()
        admission = Admission.over(store)
        submitter = Submitter(
            store,
            ids,
            nodes,
            settings,
            clock,
            admit=admission.check,
            base=base,
            files=lambda tenant: Files(store, tenant, settings.file_limits),
        )
        return cls(store, hub, ids, submitter, admission, clock)


Provider = Callable[[], Services]
"""Gives the services, or raises `StoreUnavailable` while the store has not answered yet."""
