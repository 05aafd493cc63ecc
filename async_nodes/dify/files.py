"""The files of a plugin: as a folder holds them, as a package holds them."""

from __future__ import annotations

import io
import stat
import struct
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

MAX_BYTES = 50 << 20
"""Of all files together, not compressed: the daemon's ``MAX_PLUGIN_PACKAGE_SIZE``."""

MAX_FILES = 10_000

# The only moment that a zip of every file system and time zone can hold; it says nothing.
_DATE = (1980, 1, 1, 0, 0, 0)
_MODE = 0o100644 << 16
_UNIX = 3

_DAMAGED = (
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    NotImplementedError,
    RuntimeError,
    ValueError,
    EOFError,
    OSError,
)
"""What reading a damaged zip ends with, as the places differ that are damaged."""

Files = Mapping[str, bytes]
"""Contents by path: relative, with slashes, in the order of the paths."""


class UnsoundPlugin(Exception):
    """Say in a sentence what is wrong with a plugin, its package or its keys."""


def of_folder(folder: Path) -> Files:
    """Return the files of a folder that belong into its package.

    What ``.difyignore`` (where there is none, ``.gitignore``) names stays out. As in the daemon, a
    line that takes back (``!name``) has no effect.

    Raises:
        UnsoundPlugin: for a folder without a manifest, one that holds links,
            or too much.

    """
    import pathspec

    if not (folder / "manifest.yaml").is_file():
        raise UnsoundPlugin(f"{folder} is no plugin: it has no manifest.yaml")
    ignored = pathspec.GitIgnoreSpec.from_lines(_ignored(folder))
    found: dict[str, bytes] = {}
    total = 0
    for path in sorted(folder.rglob("*"), key=lambda path: path.relative_to(folder).as_posix()):
        name = path.relative_to(folder).as_posix()
        if ignored.match_file(f"{name}/" if path.is_dir() else name):
            continue
        if path.is_symlink():
            raise UnsoundPlugin(f"{name} is a link: a package holds files")
        if not path.is_file():
            continue
        found[name] = _content(path, name, MAX_BYTES - total)
        total += len(found[name])
        _check_size(total, len(found))
    return found


def _content(path: Path, name: str, room: int) -> bytes:
    if not name.isprintable():
        message = (
            f"{name.encode('utf-8', 'backslashreplace').decode()} is no name that a zip can hold"
        )
        raise UnsoundPlugin(message)
    try:
        _check_size(max(0, path.stat().st_size - room) + MAX_BYTES, 1)
        return path.read_bytes()
    except OSError as error:
        raise UnsoundPlugin(f"{name} cannot be read: {error.strerror}") from error


def _ignored(folder: Path) -> list[str]:
    for name in (".difyignore", ".gitignore"):
        if (folder / name).is_file():
            try:
                lines = (folder / name).read_text(encoding="utf-8").splitlines()
            except (UnicodeDecodeError, OSError) as error:
                raise UnsoundPlugin(f"{name} cannot be read: {error}") from error
            return [line for line in map(str.strip, lines) if not line.startswith(("#", "!"))]
    return []


def to_zip(files: Files, *, comment: bytes = b"") -> bytes:
    """Return files as a zip, the same bytes on every machine.

    Nothing is compressed: what deflate makes differs from one library to the next.
    """
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as archive:
        for name, content in files.items():
            entry = zipfile.ZipInfo(name, _DATE)
            entry.create_system = _UNIX
            entry.external_attr = _MODE
            archive.writestr(entry, content)
        archive.comment = comment
    return out.getvalue()


def of_zip(data: bytes) -> tuple[Files, bytes]:
    """Return the files of a zip, in its own order, and its comment.

    Raises:
        UnsoundPlugin: for what is no zip, is damaged, holds a name twice or
            one that leads out of the folder, or is too large.

    """
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            entries = archive.infolist()
            _check_size(sum(entry.file_size for entry in entries), len(entries))
            found: dict[str, bytes] = {}
            for entry in entries:
                _check_entry(entry)
                _check_name(entry.orig_filename, found)
                found[entry.filename] = archive.read(entry)
            _check_folders(found)
            return found, archive.comment
    except _DAMAGED as error:
        raise UnsoundPlugin(f"this is no sound package: {error}") from error


def _check_entry(entry: zipfile.ZipInfo) -> None:
    if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        message = f"{entry.filename!r} is compressed in a way that the daemon does not read"
        raise UnsoundPlugin(message)
    kind = stat.S_IFMT(entry.external_attr >> 16)
    if entry.create_system == _UNIX and kind not in (0, stat.S_IFREG):
        raise UnsoundPlugin(f"{entry.filename!r} is a link or the like: a package holds files")


def _check_name(name: str, before: Mapping[str, bytes]) -> None:
    """Refuse what would not be written where it says: outside, over another, or nowhere."""
    path = PurePosixPath(name)
    sound = name.isprintable() and name == str(path) and name != "."
    if not sound or path.is_absolute() or ".." in path.parts or set(name) & set("\\:"):
        message = f"the package holds {name!r}, which is no name of a file in it"
        raise UnsoundPlugin(message)
    if name in before:
        raise UnsoundPlugin(f"the package holds {name!r} twice")


def _check_folders(names: Mapping[str, bytes]) -> None:
    for name in names:
        if any(str(folder) in names for folder in PurePosixPath(name).parents):
            raise UnsoundPlugin(f"the package holds {name!r} below a file")


def _check_size(total: int, count: int) -> None:
    if total > MAX_BYTES or count > MAX_FILES:
        message = (
            f"a plugin may have {MAX_BYTES >> 20} MiB in {MAX_FILES:,} files: "
            "name what does not belong into it in .difyignore"
        )
        raise UnsoundPlugin(message)
