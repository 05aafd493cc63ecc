"""Verify what arrives signed after Standard Webhooks, version v1. Pure."""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Mapping

TOLERANCE = 300
"""Seconds that sender's and receiver's clocks may differ, the sample time of the standard."""

LEAST_SECRET = 16


class Refused(Exception):
    """Say why a message is not taken."""


def verified(headers: Mapping[str, str], body: bytes, secret: str, now: float) -> str:
    """Return the id of a message that the secret's owner has sent.

    Args:
        headers: with ``webhook-id``, ``webhook-timestamp`` and ``webhook-signature``.
        body: as it was received.
        secret: ``whsec_`` and Base64.
        now: seconds since 1970.

    Raises:
        Refused: it is not signed so, or too old.

    """
    try:
        key = base64.b64decode(secret.strip().removeprefix("whsec_"), validate=True)
    except ValueError:
        raise Refused("the signing secret of this endpoint is no Base64") from None
    if len(key) < LEAST_SECRET:  # an empty one would let everybody sign
        raise Refused(f"the signing secret of this endpoint has less than {LEAST_SECRET} bytes")
    message, moment = headers.get("webhook-id", ""), headers.get("webhook-timestamp", "")
    if not message or not moment.isascii() or not moment.isdigit():
        raise Refused("webhook-id or webhook-timestamp is missing")
    if abs(now - int(moment)) > TOLERANCE:
        raise Refused("the message is too old, or from the future")
    signed = f"{message}.{moment}.".encode() + body
    wanted = base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
    given = headers.get("webhook-signature", "").split(" ")
    if not any(hmac.compare_digest(one.encode(), f"v1,{wanted}".encode()) for one in given):
        raise Refused("the signature does not fit")
    return message
