"""Write docs/metrics.md from the catalogue: ``.venv/bin/python docs/generate_metrics.py``.

Outside the way of a task. Reads `telemetry/catalogue.py` and nothing else; a test compares the page
with what this makes of the catalogue.
"""  # noqa: INP001 - a script beside the pages, no package

from __future__ import annotations

import textwrap
from pathlib import Path

from async_nodes.telemetry.catalogue import CATALOGUE, Described, Source
from docs.generate_errors import table

PAGE = Path(__file__).with_name("metrics.md")

INTRODUCTION = """\
    # Metrics · 指标

    <!-- Made by docs/generate_metrics.py from async_nodes/telemetry/catalogue.py. -->

    Every process serves its own metrics, in the text format of Prometheus or, where `Accept` asks
    for it, in OpenMetrics, which also has exemplars: the trace of a task that fell into a bucket.
    The web process has `/metrics` on its port. A worker, and each of several web processes, serves
    them where `ASYNC_NODES_METRICS_PORT` says (see [configuration](configuration.md)).
    Nothing is kept in files: a process that ends takes its series with it.

    Times are seconds, sizes bytes. A counter ends in `_total`. `celery_task_runtime` and
    `celery_active_tasks` keep the names that dashboards for Celery know. No label holds a task's
    id; `node` is the name of a node, `queue` is `io` or `cpu`, `priority` is `high`, `default` or
    `low`.

    每个进程各自提供指标:Prometheus 文本格式,或按 `Accept` 提供 OpenMetrics(含 exemplar,
    即落入该桶的任务的 trace)。时间以秒、大小以字节为单位;计数器以 `_total` 结尾。指标不写入文件,
    进程结束后其序列随之消失。
"""
TITLES = {
    Source.WORKER: "Workers · 工作进程",
    Source.WEB: "Web processes · Web 进程",
    Source.STORE: "The store, by the web process · 存储(由 Web 进程查询)",
    Source.BREAKERS: "Breakers · 熔断器",
    Source.EACH: "Every process · 所有进程",
}


def document() -> str:
    """Return the page."""
    parts = [textwrap.dedent(INTRODUCTION)]
    for source, title in TITLES.items():
        rows = [row(one) for one in CATALOGUE.values() if one.source is source]
        parts += [f"## {title}\n", table(("name", "type", "labels", "meaning", "含义"), rows)]
    return "\n".join(parts)


def row(one: Described) -> tuple[str, ...]:
    """Return the cells of a metric."""
    labels = ", ".join(f"`{label}`" for label in one.labels)
    return (f"`{one.name}`", one.kind, labels, one.en, one.zh)


if __name__ == "__main__":
    PAGE.write_text(document(), encoding="utf-8")
