"""What a package is called: ``author/name:version@checksum``."""

from __future__ import annotations

import hashlib
from typing import Any

from async_nodes.dify.files import Files, UnsoundPlugin


def checksum(files: Files) -> str:
    """Return the hex SHA-256 of names and contents, whatever their order in the package."""
    whole = hashlib.sha256()
    for name in sorted(files, key=lambda name: name.encode()):
        whole.update(hashlib.sha256(name.encode()).digest())
        whole.update(hashlib.sha256(files[name]).digest())
    return whole.hexdigest()


def identity(files: Files) -> str:
    """Return the name under which a daemon keeps a package.

    Raises:
        UnsoundPlugin: where the manifest does not say who it is.

    """
    import yaml

    try:
        manifest: Any = yaml.safe_load(files["manifest.yaml"])
        said = f"{manifest['author']}/{manifest['name']}:{manifest['version']}"
    except (KeyError, TypeError, yaml.YAMLError) as error:
        message = "manifest.yaml must say author, name and version"
        raise UnsoundPlugin(message) from error
    return f"{said}@{checksum(files)}"
