"""Step 5, expose: until when a certificate is valid. Pure.

The standard library shows a certificate's fields only of a peer that it has verified, so the few
bytes that are needed are found by hand (X.690 DER; RFC 5280, 4.1).
"""

from __future__ import annotations

import re
import ssl
from datetime import UTC, datetime
from typing import Final

_BLOCK = re.compile("-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)
_VERSION: Final = 0xA0
_UTC_TIME: Final = 0x17
_GENERAL_TIME: Final = 0x18
_LONG_FORM: Final = 0x80


def valid_until(pem: str) -> datetime:
    """Return the end of the validity of the first certificate in a PEM text.

    Raises:
        ValueError: there is none, or it cannot be read.

    """
    block = first_of(pem)
    try:
        return _end_of(ssl.PEM_cert_to_DER_cert(block))
    except (IndexError, ValueError) as error:
        raise ValueError("the certificate in it cannot be read") from error


def first_of(pem: str) -> str:
    """Return the first certificate in a PEM text, which is the server's own.

    Raises:
        ValueError: there is none.

    """
    found = _BLOCK.search(pem)
    if found is None:
        raise ValueError("there is no certificate in it")
    return found[0]


def _end_of(der: bytes) -> datetime:
    _, certificate, _ = _element(der)
    _, fields, _ = _element(certificate)
    tag, _, rest = _element(fields)
    if tag == _VERSION:  # a certificate of the first version has none
        _, _, rest = _element(rest)
    for _ in ("signature", "issuer"):
        _, _, rest = _element(rest)
    _, validity, _ = _element(rest)
    _, _, rest = _element(validity)
    tag, end, _ = _element(rest)
    return _moment(tag, end.decode("ascii"))


def _element(data: bytes) -> tuple[int, bytes, bytes]:
    """Return the tag and the content of the first element, and what follows it."""
    tag, length, start = data[0], data[1], 2
    if length & _LONG_FORM:
        start += length & ~_LONG_FORM
        length = int.from_bytes(data[2:start], "big")
    if len(data) < start + length:
        raise ValueError("cut short")
    return tag, data[start : start + length], data[start + length :]


def _moment(tag: int, text: str) -> datetime:
    if tag == _UTC_TIME:  # two digits of the year: 1950 to 2049
        text = ("20" if text < "50" else "19") + text
    elif tag != _GENERAL_TIME:
        raise ValueError("no time")
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC)
