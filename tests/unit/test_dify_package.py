"""Packages for Dify: the same bytes from the same files, their name, their signature."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import os
import subprocess
import zipfile
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from hypothesis import given
from hypothesis import strategies as st

from async_nodes.cli.verbs.dify import command
from async_nodes.dify.files import UnsoundPlugin, of_folder, of_zip, to_zip
from async_nodes.dify.identity import checksum, identity
from async_nodes.dify.signature import signed, verify
from tests.unit.dify_sample import sample

AT = 1_790_000_000


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, content in sample().items():
        path = tmp_path / "plugin" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return tmp_path / "plugin"


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, bytes]:
    """Return a private and a public key, made by OpenSSL."""
    base = tmp_path_factory.mktemp("keys")
    private, public = base / "private.pem", base / "public.pem"
    subprocess.run(
        ["openssl", "genrsa", "-traditional", "-out", private, "2048"],
        check=True,
        capture_output=True,
    )
    subprocess.run(
        ["openssl", "rsa", "-in", private, "-RSAPublicKey_out", "-out", public],
        check=True,
        capture_output=True,
    )
    return private.read_bytes(), public.read_bytes()


# -- files and names -------------------------------------------------------------------------------


def test_a_package_is_golden() -> None:
    """Whoever packs the sample, wherever: these bytes, this name."""
    files = sample()
    package = to_zip(dict(sorted(files.items())))

    assert hashlib.sha256(package).hexdigest() == GOLDEN_PACKAGE
    assert identity(files) == f"somebody/sample:0.1.0@{GOLDEN_CHECKSUM}"


GOLDEN_PACKAGE = "dbef3216913f77d5b1538cc2872e39b46ba1241a782322876a5eea21591c25bb"
GOLDEN_CHECKSUM = "e620065349e8cab25439d0d9b951159c315ece48498b8e775b8df94e9cba7968"


def test_a_checksum_is_of_names_and_contents_in_their_order() -> None:
    """Worked out by hand: two files, each the digest of its name and of its content."""
    by_hand = b"".join(hashlib.sha256(part).digest() for part in (b"a", b"1", b"b/c", b"2"))

    assert checksum({"b/c": b"2", "a": b"1"}) == hashlib.sha256(by_hand).hexdigest()


NAMES = st.from_regex(r"[a-z]{1,8}(/[a-z]{1,8})?\.[a-z]", fullmatch=True)


@given(st.dictionaries(NAMES, st.binary()))
def test_a_zip_gives_back_what_went_in(files: dict[str, bytes]) -> None:
    """Names, contents and their order."""
    assert list(of_zip(to_zip(files, comment=b"said"))[0].items()) == list(files.items())
    assert of_zip(to_zip(files, comment=b"said"))[1] == b"said"


def test_what_is_ignored_stays_out(folder: Path) -> None:
    """.difyignore wins over .gitignore; what it takes back stays out, as in the daemon."""
    (folder / ".gitignore").write_text("main.py\n")
    (folder / ".difyignore").write_text("# notes\n*.pyc\n__pycache__/\n!keep.pyc\n.difyignore\n")
    (folder / "__pycache__").mkdir()
    (folder / "__pycache__" / "x.txt").write_text("x")
    (folder / "keep.pyc").write_text("x")

    assert sorted(of_folder(folder)) == sorted([*sample(), ".gitignore"])


def test_a_folder_that_is_no_plugin_is_refused(tmp_path: Path) -> None:
    """And says so."""
    with pytest.raises(UnsoundPlugin, match=r"no manifest\.yaml"):
        of_folder(tmp_path)


def test_a_link_is_refused(folder: Path) -> None:
    """It could lead anywhere."""
    (folder / "secret").symlink_to("/etc/passwd")

    with pytest.raises(UnsoundPlugin, match="secret is a link"):
        of_folder(folder)


@pytest.mark.parametrize("name", ["../x", "/x", "a/../../x", "a\\b", "folder/"])
def test_a_name_that_leads_out_is_refused(name: str) -> None:
    """Whatever wrote the package."""
    with pytest.raises(UnsoundPlugin, match="no name of a file"):
        of_zip(to_zip({name: b"x"}))


@pytest.mark.parametrize(
    "names",
    [
        ["./a"],
        ["a//b"],
        ["C:/x"],
        ["a\nb"],
        ["a", "a/b"],
        ["a/b", "a"],
        ["."],
        ["a/./b"],
    ],
)
def test_a_name_that_is_another_place_is_refused(names: list[str]) -> None:
    """On the daemon's disk it would be over another file, or not be what it says."""
    with pytest.raises(UnsoundPlugin, match="package holds"):
        of_zip(zip_of(dict.fromkeys(names, b"x")))


def test_a_name_that_ends_early_is_refused() -> None:
    """Some readers see the whole of it, others what stands before the NUL."""
    with pytest.raises(UnsoundPlugin, match="no name of a file"):
        of_zip(zip_of({"aXb": b"x"}).replace(b"aXb", b"a\0b"))


def test_a_link_in_a_package_is_refused() -> None:
    """A package holds files."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        entry = zipfile.ZipInfo("link")
        entry.create_system, entry.external_attr = 3, 0o120777 << 16
        archive.writestr(entry, "/etc/passwd")

    with pytest.raises(UnsoundPlugin, match="is a link"):
        of_zip(out.getvalue())


@pytest.mark.parametrize("method", [zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2])
def test_what_the_daemon_cannot_unpack_is_refused(method: int) -> None:
    """It knows deflate, and no compression at all."""
    with pytest.raises(UnsoundPlugin, match="compressed in a way"):
        of_zip(zip_of({"a": b"x"}, method))


@given(st.data())
def test_a_damaged_package_is_refused_or_the_same(data: st.DataObject) -> None:
    """Whichever of its bytes is another."""
    whole = zip_of(sample(), zipfile.ZIP_DEFLATED)
    damaged = bytearray(whole)
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))

    try:
        files, _ = of_zip(bytes(damaged))
    except UnsoundPlugin:
        return
    assert set(files.values()) <= set(sample().values())  # each content has its checksum


def zip_of(files: dict[str, bytes], method: int = zipfile.ZIP_STORED) -> bytes:
    """Return a zip as anybody makes it."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return out.getvalue()


@pytest.mark.parametrize(
    ("name", "says"), [(b"bad\xff.txt", "bad.*ff"), (b"a\nb", "no name that a zip can hold")]
)
def test_a_file_whose_name_no_zip_holds_is_named(folder: Path, name: bytes, says: str) -> None:
    """It would have another name wherever it is unpacked."""
    Path(os.fsdecode(os.fsencode(folder) + b"/" + name)).write_text("x")

    with pytest.raises(UnsoundPlugin, match=says):
        of_folder(folder)


def test_a_list_of_what_is_ignored_that_is_no_text_is_named(folder: Path) -> None:
    """Rather than to pack what should stay out."""
    (folder / ".difyignore").write_bytes(b"\xff\xfe\x00")

    with pytest.raises(UnsoundPlugin, match=r"\.difyignore cannot be read"):
        of_folder(folder)


def test_a_huge_file_is_not_read(folder: Path) -> None:
    """Its size is enough to refuse it."""
    with (folder / "huge").open("wb") as file:
        file.truncate(1 << 40)

    with pytest.raises(UnsoundPlugin, match="50 MiB"):
        of_folder(folder)


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_name_twice_is_refused() -> None:
    """One reader would see the first, another the last."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("a", "1")
        archive.writestr("a", "2")

    with pytest.raises(UnsoundPlugin, match="'a' twice"):
        of_zip(out.getvalue())


def test_too_much_is_refused_before_it_is_read() -> None:
    """A package of a few kB that would unpack to more than Dify takes."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("zeros", bytes((50 << 20) + 1))

    with pytest.raises(UnsoundPlugin, match="50 MiB"):
        of_zip(out.getvalue())


@given(st.binary(max_size=200))
def test_rubbish_is_refused(data: bytes) -> None:
    """Never another error than ours."""
    with pytest.raises(UnsoundPlugin):
        of_zip(data)


# -- signatures ------------------------------------------------------------------------------------


@pytest.mark.needs("openssl")
def test_openssl_agrees_with_a_signature(keys: tuple[bytes, bytes], tmp_path: Path) -> None:
    """Signed are the contents' digests in the package's order, and the time."""
    private, public = keys
    package = signed(to_zip(sample()), private, at=AT)
    files, comment = of_zip(package)
    said = json.loads(comment)
    message = b"".join(hashlib.sha256(content).digest() for content in files.values())
    (tmp_path / "message").write_bytes(message + str(said["time"]).encode())
    (tmp_path / "signature").write_bytes(base64.b64decode(said["signature"]))
    (tmp_path / "public").write_bytes(public)

    answer = subprocess.run(
        ["openssl", "dgst", "-sha256", "-verify", "public", "-signature", "signature", "message"],
        cwd=tmp_path,
        check=False,
        capture_output=True,
        text=True,
    )

    assert answer.stdout == "Verified OK\n", answer.stderr
    assert files == sample()
    assert verify(package, [public]) == AT


@pytest.mark.needs("openssl")
@pytest.mark.parametrize("name", sorted(sample()))
def test_a_changed_file_is_noticed(keys: tuple[bytes, bytes], name: str) -> None:
    """Whichever it is."""
    private, public = keys
    files, comment = of_zip(signed(to_zip(sample()), private, at=AT))
    changed = {**files, name: files[name] + b" "}

    with pytest.raises(UnsoundPlugin, match="was changed"):
        verify(to_zip(changed, comment=comment), [public])


@pytest.mark.needs("openssl")
def test_a_changed_time_or_an_added_file_is_noticed(keys: tuple[bytes, bytes]) -> None:
    """They are signed, too."""
    private, public = keys
    files, comment = of_zip(signed(to_zip(sample()), private, at=AT))
    later = comment.replace(str(AT).encode(), str(AT + 1).encode())

    for package in (to_zip(files, comment=later), to_zip({**files, "x": b""}, comment=comment)):
        with pytest.raises(UnsoundPlugin, match="was changed"):
            verify(package, [public])


@pytest.mark.needs("openssl")
def test_signing_again_replaces_the_signature(keys: tuple[bytes, bytes]) -> None:
    """One signature, over the same files."""
    private, public = keys
    once = signed(to_zip(sample()), private, at=AT)

    assert verify(signed(once, private, at=AT + 5), [public]) == AT + 5


@pytest.mark.parametrize(
    ("comment", "says"),
    [
        (b"", "is not signed"),
        (b"hello", "cannot be read"),
        (b"[]", "cannot be read"),
        (b'{"signature": "%%%", "time": 1}', "cannot be read"),
        (b'{"signature": "eA==", "time": true}', "no whole number"),
        (b'{"signature": "eA==", "time": 0}', "no whole number"),
        (b'{"signature": "eA==", "time": 253402300800}', "no whole number"),
    ],
)
def test_what_is_no_signature_is_named(comment: bytes, says: str) -> None:
    """Nothing there, or rubbish."""
    with pytest.raises(UnsoundPlugin, match=says):
        verify(to_zip(sample(), comment=comment), [])


def pem_of(key: Any, form: str = "TraditionalOpenSSL", password: str = "") -> bytes:
    """Return a private key as PEM."""
    encryption: serialization.KeySerializationEncryption = serialization.NoEncryption()
    if password:
        encryption = serialization.BestAvailableEncryption(password.encode())
    shape = getattr(serialization.PrivateFormat, form)
    return key.private_bytes(serialization.Encoding.PEM, shape, encryption)


RSA = rsa.generate_private_key(public_exponent=65_537, key_size=2048)
WEAK = rsa.generate_private_key(public_exponent=65_537, key_size=1024)  # noqa: S505 - refused
CURVE = ec.generate_private_key(ec.SECP256R1())
SPKI = RSA.public_key().public_bytes(
    serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
)


@pytest.mark.parametrize(
    ("key", "says"),
    [
        (pem_of(WEAK), "1024 bits"),
        (pem_of(CURVE), "RSA keys only"),
        (pem_of(RSA, password="secret"), "with a password"),
        (SPKI, "no private key"),
        (b"", "no private key"),
    ],
)
def test_a_key_that_cannot_sign_is_named(key: bytes, says: str) -> None:
    """Too short, of another kind, locked, public, or none."""
    with pytest.raises(UnsoundPlugin, match=says):
        signed(to_zip(sample()), key, at=AT)


@pytest.mark.parametrize(
    ("key", "says"),
    [(SPKI, "RSAPublicKey_out"), (pem_of(RSA), "no public key"), (b"\xff", "no public key")],
)
def test_a_key_that_the_daemon_would_not_read_is_named(key: bytes, says: str) -> None:
    """It knows one form of public keys only; what we verified, it would refuse."""
    package = signed(to_zip(sample()), pem_of(RSA, "PKCS8"), at=AT)

    with pytest.raises(UnsoundPlugin, match=says):
        verify(package, [key])


def test_a_key_that_is_none_is_named() -> None:
    """Before anything is written."""
    with pytest.raises(UnsoundPlugin, match="no private key"):
        signed(to_zip(sample()), b"-----BEGIN NOTHING-----", at=AT)


# -- the command line ------------------------------------------------------------------------------


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(command, [str(argument) for argument in arguments])


def test_from_a_folder_to_a_verified_package(folder: Path, tmp_path: Path) -> None:
    """lint, pack, keygen, sign and verify, as a person would."""
    package, key = tmp_path / "p.difypkg", tmp_path / "me"

    assert "sound" in run("lint", folder).output
    packed = run("pack", folder, "-o", package)
    assert packed.output.splitlines()[-1] == f"somebody/sample:0.1.0@{GOLDEN_CHECKSUM}"
    assert run("keygen", key).exit_code == 0
    assert (tmp_path / "me.private.pem").stat().st_mode & 0o777 == 0o600
    assert run("sign", package, "--key", f"{key}.private.pem").exit_code == 0
    answer = run("verify", tmp_path / "p.signed.difypkg", "--public-key", f"{key}.public.pem")
    assert GOLDEN_CHECKSUM in answer.output
    assert answer.exit_code == 0


def test_nothing_is_overwritten_unasked(folder: Path, tmp_path: Path) -> None:
    """Packages with --force only, keys never."""
    package = tmp_path / "p.difypkg"
    package.write_bytes(b"mine")

    assert run("pack", folder, "-o", package).exit_code == 1
    assert package.read_bytes() == b"mine"
    assert run("pack", folder, "-o", package, "--force").exit_code == 0
    assert package.read_bytes() != b"mine"


def test_a_wrong_plugin_is_not_packed(folder: Path, tmp_path: Path) -> None:
    """The first thing wrong is said, and where to see the others."""
    (folder / "main.py").unlink()

    answer = run("pack", folder, "-o", tmp_path / "p.difypkg")

    assert answer.exit_code == 1
    assert "main.py" in str(answer.exception)
    assert not (tmp_path / "p.difypkg").exists()
    assert run("lint", folder).exit_code == 1
