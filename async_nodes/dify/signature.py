"""Sign a package and verify it, as the daemon does: RSA, PKCS #1 v1.5, SHA-256.

Signed are the SHA-256 of each content in the order of the zip, and the time in decimal seconds; the
signature stands in the zip's comment. Names are not signed: the checksum of the identity covers
them. Keys are PEM files in PKCS #1, as Dify's own command makes them.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from async_nodes.dify.files import Files, UnsoundPlugin, of_zip, to_zip

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, RSAPublicKey

KEY_BITS = 4096
LEAST_BITS = 2048
END_OF_TIME = 253_402_300_800
"""Seconds from 1970 to the year 10000, which no calendar here has."""
PKCS1 = b"-----BEGIN RSA PUBLIC KEY-----"


def new_key() -> tuple[bytes, bytes]:
    """Return a private key and its public half, as PEM."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import rsa

    key = rsa.generate_private_key(public_exponent=65_537, key_size=KEY_BITS)
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    )
    public = key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.PKCS1
    )
    return private, public


def signed(package: bytes, private_key: bytes, *, at: int) -> bytes:
    """Return a package with a signature, in place of one that it had.

    Args:
        package: the bytes of a ``.difypkg``.
        private_key: PEM.
        at: seconds since 1970; part of what is signed.

    Raises:
        UnsoundPlugin: for an unsound package or key.

    """
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import padding

    files, _ = of_zip(package)
    signature = _private(private_key).sign(_message(files, at), padding.PKCS1v15(), hashes.SHA256())
    said = {"signature": base64.b64encode(signature).decode(), "time": at}
    return to_zip(files, comment=json.dumps(said, separators=(",", ":")).encode())


def verify(package: bytes, public_keys: Sequence[bytes]) -> int:
    """Return when a package was signed, in seconds since 1970, by one of the keys' owners.

    Raises:
        UnsoundPlugin: it is not signed, by nobody of them, or was changed.

    """
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import padding

    files, comment = of_zip(package)
    signature, at = _said(comment)
    for key in public_keys:
        try:
            _public(key).verify(signature, _message(files, at), padding.PKCS1v15(), hashes.SHA256())
        except InvalidSignature:
            continue
        return at
    message = "the package was changed after it was signed, or somebody else has signed it"
    raise UnsoundPlugin(message)


def _message(files: Files, at: int) -> bytes:
    hashed = [hashlib.sha256(content).digest() for content in files.values()]
    return b"".join(hashed) + str(at).encode()


def _said(comment: bytes) -> tuple[bytes, int]:
    if not comment:
        raise UnsoundPlugin("the package is not signed")
    try:
        said = json.loads(comment)
        signature, at = base64.b64decode(said["signature"], validate=True), said["time"]
    except (ValueError, KeyError, TypeError, binascii.Error) as error:
        message = "what the package has in place of a signature cannot be read"
        raise UnsoundPlugin(message) from error
    if type(at) is not int or not 0 < at < END_OF_TIME:
        raise UnsoundPlugin("the signature's time is no whole number of seconds since 1970")
    return signature, at


def _private(pem: bytes) -> RSAPrivateKey:
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        key = load_pem_private_key(pem, password=None)
    except (ValueError, TypeError) as error:
        message = f"this is no private key in PEM, or one with a password: {error}"
        raise UnsoundPlugin(message) from error
    if not isinstance(key, RSAPrivateKey):
        raise UnsoundPlugin("Dify knows RSA keys only")
    if key.key_size < LEAST_BITS:
        raise UnsoundPlugin(f"a key of {key.key_size} bits protects nothing: take {KEY_BITS}")
    return key


def _public(pem: bytes) -> RSAPublicKey:
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    try:
        key = load_pem_public_key(pem)
    except (ValueError, TypeError) as error:
        message = f"this is no public key in PEM: {error}"
        raise UnsoundPlugin(message) from error
    if not isinstance(key, RSAPublicKey):
        raise UnsoundPlugin("Dify knows RSA keys only")
    if PKCS1 not in pem:
        message = (
            "Dify reads public keys as PKCS #1 (BEGIN RSA PUBLIC KEY) only: "
            "openssl rsa -pubin -in this.pem -RSAPublicKey_out"
        )
        raise UnsoundPlugin(message)
    return key
