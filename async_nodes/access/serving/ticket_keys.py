"""Step 5, expose: one key for the TLS tickets of several processes.

A client that comes back shows a ticket, and the server that knows the ticket's key spares both the
costly part of the handshake. OpenSSL makes such a key for each context, and Python has no way to
set it: with several processes on one port, most tickets would meet another process than their
own. So the key is set through OpenSSL's own function, which ctypes finds where Python's ``_ssl``
has it. A wrong guess about where an SSLContext keeps its pointer would crash, so `supported` tries
it in a process of its own first, and whoever gets a no goes without.

Knows the standard library only, because `supported` runs this very file as a script.
"""

from __future__ import annotations

import ctypes
import os
import ssl
import subprocess
import sys
from pathlib import Path
from typing import Final

LENGTH: Final = 80
"""Bytes: a name of 16, and 32 each for the authentication and the encryption."""

PROBE_SECONDS: Final = 10.0
_SET_TICKET_KEYS: Final = 59  # SSL_CTRL_SET_TLSEXT_TICKET_KEYS of <openssl/ssl.h>
_ROUND_TRIPS: Final = 8


def make() -> bytes:
    """Return a new key."""
    return os.urandom(LENGTH)


def install(context: ssl.SSLContext, key: bytes) -> None:
    """Let a context write and read its tickets with this key.

    Raises:
        OSError: this Python does not lead to OpenSSL's function.

    """
    import _ssl

    library = ctypes.CDLL(getattr(_ssl, "__file__", None))
    try:
        control = library.SSL_CTX_ctrl
    except AttributeError as error:
        raise OSError("OpenSSL's functions cannot be found") from error
    control.argtypes = (ctypes.c_void_p, ctypes.c_int, ctypes.c_long, ctypes.c_char_p)
    control.restype = ctypes.c_long
    # The first member of CPython's PySSLContext, from 2.7.9 on.
    pointer = ctypes.c_void_p.from_address(id(context) + object.__basicsize__).value
    if control(pointer, _SET_TICKET_KEYS, LENGTH, key) != 1:
        raise OSError("OpenSSL refused the key of the tickets")


def supported(certificate: str, key: str) -> bool:
    """Tell whether a ticket of one context is good in another that has the same key."""
    command = [sys.executable, "-I", "-S", str(Path(__file__).resolve()), certificate, key]
    try:
        done = subprocess.run(
            command,
            check=False,
            capture_output=True,
            timeout=PROBE_SECONDS,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.SubprocessError):
        return False
    return done.returncode == 0


def _resumes(certificate: str, key: str) -> bool:
    shared = make()
    servers = []
    for _ in range(2):
        server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        server.load_cert_chain(certificate, key)
        install(server, shared)
        servers.append(server)
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False
    client.verify_mode = ssl.CERT_NONE
    first = _shake(servers[0], client, None)
    return bool(_shake(servers[1], client, first.session).session_reused)


def _shake(
    server: ssl.SSLContext, client: ssl.SSLContext, session: ssl.SSLSession | None
) -> ssl.SSLObject:
    """Shake hands without a network, and return the client's side with a ticket."""
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    here = client.wrap_bio(down, up, session=session)
    there = server.wrap_bio(up, down, server_side=True)
    waiting = [here, there]
    for side in waiting * _ROUND_TRIPS:
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            continue
    there.write(b"+")
    here.read(1)  # tickets come before the first byte
    return here


if __name__ == "__main__":
    sys.exit(0 if _resumes(*sys.argv[1:3]) else 1)
