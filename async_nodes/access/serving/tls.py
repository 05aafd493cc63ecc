"""Step 5, expose: the certificate, and what is agreed on with clients. TLS 1.2 and 1.3, no less.

Read when the process starts and again when it is asked to; a certificate that cannot be used
leaves the one in force as it is. Works in plain processes too.
"""

from __future__ import annotations

import logging
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, NoReturn

from async_nodes.access.serving import ticket_keys
from async_nodes.access.serving.certificate import valid_until
from async_nodes.core.errors import AsyncNodesError
from async_nodes.settings import Settings

SOON: Final = timedelta(days=14)
"""A certificate that ends within this time is worth a warning."""

# TLS 1.2: keys that nobody can derive later, and ciphers that authenticate. 1.3 has no others.
CIPHERS: Final = "ECDHE+AESGCM:ECDHE+CHACHA20"

log = logging.getLogger(__name__)


class ServerTls:
    """Hold the certificate in force.

    Args:
        certificate: PEM file with the chain.
        key: PEM file with its key.
        ticket_key: shared with other processes; None for one that nobody else knows.

    Attributes:
        context: for the next connection.
        valid_until: the certificate's end.

    Raises:
        AsyncNodesError: ``invalid_setting``: a file that cannot be read, or that is not what it
            should be.

    """

    def __init__(self, certificate: str, key: str, *, ticket_key: bytes | None = None) -> None:
        self._files = (certificate, key)
        self._ticket_key = ticket_key
        self.valid_until = _read_end(certificate)
        self.context = self._new_context()

    @classmethod
    def of(cls, settings: Settings, *, ticket_key: bytes | None = None) -> ServerTls | None:
        """Return what the settings name, None for plain HTTP."""
        if settings.tls_cert is None:
            return None
        key = settings.tls_key or settings.tls_cert
        return cls(settings.tls_cert, key, ticket_key=ticket_key)

    def reload(self) -> None:
        """Read the files again, for the connections to come.

        The context stays, and with it the key of the tickets that are out.

        Raises:
            AsyncNodesError: ``invalid_setting``; the certificate in force stays.

        """
        end = _read_end(self._files[0])
        fresh = self._new_context()
        try:
            self.context.load_cert_chain(*self._files)
        except OSError:  # changed since a moment ago
            self.context = fresh
        self.valid_until = end
        log.info("The certificate was read again", extra={"action": "tls_reloaded"})

    def warn(self) -> None:
        """Log that the certificate's end is near, or past."""
        left = self.valid_until - datetime.now(UTC)
        if left < SOON:
            word = "has expired on" if left < timedelta(0) else "expires on"
            log.warning(
                "The certificate %s %s",
                word,
                self.valid_until.isoformat(),
                extra={"action": "tls_expiry"},
            )

    def _new_context(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.options |= ssl.OP_CIPHER_SERVER_PREFERENCE | ssl.OP_NO_COMPRESSION
        context.options |= ssl.OP_NO_RENEGOTIATION
        context.set_ciphers(CIPHERS)
        context.set_alpn_protocols(["http/1.1"])
        context.num_tickets = 1  # each costs a sixth of a handshake, and one may be used again
        _load(context, *self._files)
        if self._ticket_key is not None:
            ticket_keys.install(context, self._ticket_key)
        return context


def _read_end(certificate: str) -> datetime:
    try:
        return valid_until(Path(certificate).read_text(encoding="ascii", errors="replace"))
    except (OSError, ValueError) as error:
        raise _invalid("CERT", certificate, error) from error


def _load(context: ssl.SSLContext, certificate: str, key: str) -> None:
    try:
        Path(key).open("rb").close()  # the library would not say which file it cannot read
    except OSError as error:
        raise _invalid("KEY", key, error) from error
    try:
        context.load_cert_chain(certificate, key, password=_refuse_password)
    except ssl.SSLError as error:
        mismatch = error.reason == "KEY_VALUES_MISMATCH"
        why = "is not the key of the certificate" if mismatch else f"cannot be used: {error}"
        raise AsyncNodesError("invalid_setting", f"ASYNC_NODES_TLS_KEY: {key} {why}") from error
    except (OSError, _PasswordError) as error:
        raise _invalid("KEY", key, error) from error


class _PasswordError(Exception):
    """Says that a key is encrypted."""


def _refuse_password() -> NoReturn:
    # Otherwise OpenSSL would ask the terminal, and wait.
    raise _PasswordError("the key is encrypted: store it without a password")


def _invalid(name: str, path: str, error: Exception) -> AsyncNodesError:
    why = getattr(error, "strerror", None) or str(error)
    return AsyncNodesError("invalid_setting", f"ASYNC_NODES_TLS_{name}: {path}: {why}")
