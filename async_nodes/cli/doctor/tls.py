"""The check of the certificate: it can be used, and for how long."""

from __future__ import annotations

from datetime import UTC, datetime

from async_nodes.access.serving.tls import SOON, ServerTls
from async_nodes.cli.doctor.check import Check, Outcome, Patient
from async_nodes.cli.language import tr

_DAY = 86_400


def tls(patient: Patient) -> Check:
    """tls: the certificate and its key belong together, and are valid for a while."""
    settings = patient.known_settings()
    served = ServerTls.of(settings)
    if served is None:
        return Check("tls", Outcome.OK, tr("plain HTTP", "明文 HTTP"))
    left = served.valid_until - datetime.now(UTC)
    day, days = served.valid_until.date(), left.total_seconds() / _DAY
    detail = tr(
        f"{settings.tls_cert}, valid until {day}, {days:.0f} days",
        f"{settings.tls_cert},有效期至 {day},剩余 {days:.0f} 天",
    )
    if days < 0:
        hint = tr("Clients refuse it: renew it.", "客户端会拒绝该证书:请续期。")
        return Check("tls", Outcome.FAIL, detail, hint)
    if left < SOON:
        hint = tr(
            "Renew it, then send SIGUSR1 to the web process (or the keeper).",
            "请续期,然后向 Web 进程(或看护进程)发送 SIGUSR1。",
        )
        return Check("tls", Outcome.WARN, detail, hint)
    return Check("tls", Outcome.OK, detail)
