"""The metrics of other processes of this machine on one page, as `dev` shows them.

Each sample gets the label ``process``. A process that does not answer is missing from the page and
counted; it is asked again at the next scrape.
"""

from __future__ import annotations

import http.client
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

from async_nodes.telemetry.registry import family

SECONDS: Final = 2.0
"""How long one process is waited for."""

OPENMETRICS: Final = "application/openmetrics-text; version=1.0.0"
_parse: Final[Any] = text_string_to_metric_families
_MOST: Final = 16 << 20


def fetch(address: str) -> str:
    """Return the page at ``host:port``.

    Raises:
        OSError, http.client.HTTPException: there is none.

    """
    connection = http.client.HTTPConnection(address, timeout=SECONDS)
    try:
        connection.request("GET", "/metrics", headers={"Accept": OPENMETRICS})
        answer = connection.getresponse()
        body = answer.read(_MOST).decode()
        if answer.status != http.client.OK:
            raise http.client.HTTPException(answer.status)
        return body
    finally:
        connection.close()


class Labelled(Collector):
    """Show a collector's metrics with the name of their process.

    Args:
        name: of the process.
        part: whose metrics.

    """

    def __init__(self, name: str, part: Collector | CollectorRegistry) -> None:
        self._name = name
        self._part = part

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics."""
        return labelled(self._name, self._part.collect())


class Beside(Collector):
    """Show the metrics of other processes.

    Args:
        entries: ``name=host:port`` of each.
        get: returns the page at an address.

    """

    def __init__(self, entries: Sequence[str], get: Callable[[str], str] = fetch) -> None:
        self._entries = [entry.partition("=")[::2] for entry in entries]
        self._get = get

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics of those that answer."""
        silent = 0
        for name, address in self._entries:
            try:
                found = list(_parse(self._get(address)))
            except (OSError, http.client.HTTPException, ValueError):
                silent += 1
            else:
                yield from labelled(name, found)
        shown = len(self._entries) - silent
        yield family("async_nodes_metrics_processes", [(("shown",), shown), (("silent",), silent)])


def labelled(name: str, metrics: Iterable[Metric]) -> Iterator[Metric]:
    """Yield metrics whose samples tell which process they are of."""
    for metric in metrics:
        metric.samples = [_of(name, sample) for sample in metric.samples]
        yield metric


def _of(name: str, sample: Any) -> Sample:
    return Sample(
        sample.name,
        {**sample.labels, "process": name},
        sample.value,
        sample.timestamp,
        sample.exemplar,
    )
