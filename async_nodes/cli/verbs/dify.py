"""``async-nodes dify``: check a plugin for Dify, pack it, sign it, verify it."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import click

from async_nodes.cli.console import Console
from async_nodes.cli.failures import Failure
from async_nodes.cli.language import tr

_FOLDER = click.Path(exists=True, file_okay=False, path_type=Path)
_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
_NEW = click.Path(dir_okay=False, path_type=Path)


@click.group(
    help=tr("Check, pack, sign and verify plugins for Dify.", "检查、打包、签名、验证 Dify 插件。")
)
def command() -> None:
    """Group what is done to plugins."""


@command.command(
    help=tr("Check a plugin's folder by Dify's rules.", "按 Dify 的规则检查插件目录。")
)
@click.argument("folder", type=_FOLDER)
def lint(folder: Path) -> None:
    """Print what is wrong, and fail where a daemon would refuse it."""
    from async_nodes.dify.files import of_folder
    from async_nodes.dify.rules import check

    with _explained():
        files = of_folder(folder)
        found = check(files)
    console = Console()
    for one in found:
        place = f"{one.file}: {one.where}: " if one.where else f"{one.file}: "
        kind = tr("advice", "建议") if one.advice else tr("error", "错误")
        console.line(f"{kind}  {place}{one.text}")
    errors = sum(not one.advice for one in found)
    if errors:
        raise Failure(
            tr(
                f"Dify would refuse this plugin: {errors} errors",
                f"Dify 会拒绝此插件:{errors} 个错误",
            )
        )
    console.line(tr(f"{folder}: sound, {len(files)} files", f"{folder}:合格,{len(files)} 个文件"))


@command.command(help=tr("Pack a plugin's folder into one file.", "将插件目录打包为一个文件。"))
@click.argument("folder", type=_FOLDER)
@click.option("-o", "--output", type=_NEW, help=tr("The package to write.", "要写入的包。"))
@click.option("--force", is_flag=True, help=tr("Replace the file.", "覆盖已有文件。"))
def pack(folder: Path, output: Path | None, *, force: bool) -> None:
    """Write a package, the same bytes from the same files, and print what Dify will call it."""
    from async_nodes.dify.files import of_folder, to_zip
    from async_nodes.dify.identity import identity
    from async_nodes.dify.rules import check

    with _explained():
        files = of_folder(folder)
        wrong = [one for one in check(files) if not one.advice]
        if wrong:
            raise Failure(
                f"{wrong[0].file}: {wrong[0].where} {wrong[0].text}",
                tr(
                    f"`async-nodes dify lint {folder}` shows all {len(wrong)}",
                    f"`async-nodes dify lint {folder}` 可列出全部 {len(wrong)} 个",
                ),
            )
        named = identity(files)
        package = to_zip(files)
    name = named.partition("@")[0].replace("/", "-").replace(":", "_")
    _write(output or Path(f"{name}.difypkg"), package, force=force)
    Console().line(named)


@command.command(help=tr("Sign a package with an RSA key.", "用 RSA 私钥给包签名。"))
@click.argument("package", type=_FILE)
@click.option(
    "--key", type=_FILE, required=True, help=tr("The private key, PEM.", "私钥,PEM 格式。")
)
@click.option("-o", "--output", type=_NEW, help=tr("What to write.", "要写入的文件。"))
@click.option("--force", is_flag=True, help=tr("Replace the file.", "覆盖已有文件。"))
def sign(package: Path, key: Path, output: Path | None, *, force: bool) -> None:
    """Write the signed package, beside the other where no name is given."""
    from async_nodes.dify.signature import signed

    with _explained():
        data = signed(package.read_bytes(), key.read_bytes(), at=int(time.time()))
    _write(output or package.with_name(f"{package.stem}.signed.difypkg"), data, force=force)


@command.command(help=tr("Verify who has signed a package.", "验证包的签名者。"))
@click.argument("package", type=_FILE)
@click.option(
    "--public-key",
    "keys",
    type=_FILE,
    required=True,
    multiple=True,
    help=tr("A key that is trusted, PEM; may be repeated.", "受信任的公钥,PEM 格式,可重复。"),
)
def verify(package: Path, keys: tuple[Path, ...]) -> None:
    """Print a package's name and when it was signed, or fail."""
    from async_nodes.dify.files import of_zip
    from async_nodes.dify.identity import identity
    from async_nodes.dify.signature import verify as signed_at

    with _explained():
        data = package.read_bytes()
        at = signed_at(data, [key.read_bytes() for key in keys])
        named = identity(of_zip(data)[0])
    moment = datetime.fromtimestamp(at, UTC).isoformat()
    Console().line(tr(f"{named}\nsigned {moment}", f"{named}\n签名时间 {moment}"))


@command.command(help=tr("Make a pair of keys to sign with.", "生成一对签名密钥。"))
@click.argument("name", type=_NEW)
def keygen(name: Path) -> None:
    """Write NAME.private.pem, for its owner alone, and NAME.public.pem."""
    from async_nodes.dify.signature import new_key

    with _explained():
        private, public = new_key()
    _write(name.with_name(f"{name.name}.private.pem"), private, force=False, mode=0o600)
    _write(name.with_name(f"{name.name}.public.pem"), public, force=False)


@contextlib.contextmanager
def _explained() -> Iterator[None]:
    """Turn what is wrong with a plugin, or with this installation, into a sentence."""
    from async_nodes.dify.files import UnsoundPlugin

    try:
        yield
    except UnsoundPlugin as error:
        raise Failure(str(error)) from error
    except ModuleNotFoundError as error:
        raise Failure(
            tr(f"this needs the package {error.name}", f"需要安装 {error.name}"),
            "pip install 'async_nodes[dify]'",
        ) from error


def _write(path: Path, data: bytes, *, force: bool, mode: int = 0o644) -> None:
    flags = os.O_WRONLY | os.O_CREAT | (os.O_TRUNC if force else os.O_EXCL)
    try:
        with os.fdopen(os.open(path, flags, mode), "wb") as file:
            file.write(data)
    except FileExistsError as error:
        hint = "" if mode == 0o600 else "--force"  # noqa: PLR2004 - a key is never replaced
        raise Failure(tr(f"{path} is there already", f"{path} 已存在"), hint) from error
    except OSError as error:
        raise Failure(f"{path}: {error.strerror}") from error
    Console().line(tr(f"{path}: {len(data):,} bytes", f"{path}:{len(data):,} 字节"))
