"""Step 5, expose: the OpenAPI document of files. Upload, describe, download, delete, list."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from async_nodes.access.api.files import MOST, USUAL
from async_nodes.access.openapi.pieces import (
    STORED,
    answer,
    bare,
    given,
    header,
    operation,
    parameters,
    problems,
)
from async_nodes.access.openapi.shapes import COUNT, TEXT, TIME, Schema, array, members, ref
from async_nodes.core.files import DEFAULT_TTL, MAX_NAME, MAX_TTL

FILE_ID_PATTERN: Final = "^f_[0-9A-HJKMNP-TV-Z]{26}$"
FOUND: Final = ("file_not_found", "file_gone")
BINARY: Final = "application/octet-stream"
_EXAMPLE: Final[Schema] = {
    "file_id": "f_01JZ8Q4T5M7W9X2Y3Z6A8B0C1D",
    "name": "report.pdf",
    "media_type": "application/pdf",
    "size": 48_213,
    "sha256": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    "created_at": "2025-07-02T09:30:00.000Z",
    "expires_at": "2025-07-03T09:30:00.000Z",
    "ttl": DEFAULT_TTL,
    "links": {
        "self": "/v1/files/f_01JZ8Q4T5M7W9X2Y3Z6A8B0C1D",
        "content": "/v1/files/f_01JZ8Q4T5M7W9X2Y3Z6A8B0C1D/content",
    },
}


def paths(nodes: Sequence[str]) -> Schema:
    """Return the paths.

    Args:
        nodes: of no use here.

    """
    file = [
        given(
            "path",
            "file_id",
            "What an upload answered.",
            pattern=FILE_ID_PATTERN,
            example=_EXAMPLE["file_id"],
        )
    ]
    show = operation(
        "readFile",
        "Show what a file is",
        {"200": answer("The description", ref("File")), **problems(*FOUND, *STORED)},
    )
    delete = operation(
        "deleteFile",
        "Delete a file; from then on it is gone",
        {"204": bare("Deleted"), **problems(*FOUND, *STORED)},
    )
    return {
        "/v1/files": {"post": _upload(), "get": _list()},
        "/v1/files/{file_id}": {"parameters": file, "get": show, "delete": delete},
        "/v1/files/{file_id}/content": {"parameters": file, "get": _download()},
    }


def _upload() -> Schema:
    name = {**TEXT, "maxLength": MAX_NAME}
    ttl = {"type": "integer", "minimum": 1, "maximum": MAX_TTL, "default": DEFAULT_TTL}
    kept = answer("Kept", ref("File"), named=("Location", "Idempotency-Replayed"))
    kept["headers"]["Location"] = header("The file's address", format="uri-reference")
    refused = ("invalid_request", "idempotency_mismatch", "digest_mismatch")
    return operation(
        "uploadFile",
        "Upload a file: the body itself, or the one file of a form",
        {
            "201": kept,
            **problems(*refused, "file_too_large", "file_storage_full", "upload_too_slow", *STORED),
        },
        parameters=[
            given("query", "name", "The file's name; before that of the head.", **name),
            {
                **given("query", "ttl", "Seconds to keep it; longer while tasks need it."),
                "schema": ttl,
            },
            given("header", "Content-Disposition", "The file's name, as filename or filename*."),
            given("header", "Content-Digest", "sha-256=:…: or sha-512=:…: of the body; checked."),
            *parameters("idempotency_key"),
        ],
        requestBody={
            "required": False,
            "description": "The file; without a body, an empty one.",
            "content": {
                "*/*": {"schema": {}, "example": "Dear customer, …"},
                "multipart/form-data": {
                    "schema": {
                        "type": "object",
                        "required": ["file"],
                        "additionalProperties": False,
                        "properties": {
                            "file": {"contentMediaType": BINARY},
                            "name": name,
                            "ttl": ttl,
                        },
                    }
                },
            },
        },
        **{"x-sample": {"query": "name=letter.txt", "headers": {"Content-Type": "text/plain"}}},
    )


def _list() -> Schema:
    return operation(
        "listFiles",
        "List the files, the youngest first",
        {"200": answer("A page of files", ref("FileList")), **problems(*STORED)},
        parameters=[
            {
                **given("query", "limit", "How many at most."),
                "schema": {"type": "integer", "minimum": 1, "maximum": MOST, "default": USUAL},
            },
            given("query", "cursor", "The next of the page before.", pattern=FILE_ID_PATTERN),
        ],
    )


def _download() -> Schema:
    content: Schema = {"description": "The content, under its own media type."}
    whole = answer("The content", content, "*/*", named=("ETag",))
    part = answer("The part asked for", content, "*/*", named=("ETag",))
    told = {"ETag": header("The content's SHA-256 in quotes")}
    told["Content-Disposition"] = header("attachment, with the file's name")
    told["Accept-Ranges"] = header("bytes: the header Range is heeded")
    whole["headers"] = dict(told)
    part["headers"] = {
        **told,
        "Content-Range": header("Which bytes, of how many, as bytes 0-99/1000"),
    }
    return operation(
        "downloadFile",
        "Download a file's content, whole or in part",
        {
            "200": whole,
            "206": part,
            "304": bare("Not changed"),
            **problems(*FOUND, "range_not_satisfiable", *STORED),
        },
        parameters=[
            given("header", "Range", "bytes=0-99: one part of the content."),
            given("header", "If-Range", "The ETag of the parts you have; others give the whole."),
            *parameters("if_none_match"),
        ],
    )


SCHEMAS: Final[Mapping[str, Schema]] = {
    "File": members(
        {
            "file_id": {"type": "string", "pattern": FILE_ID_PATTERN},
            "name": TEXT,
            "media_type": {**TEXT, "description": "As its sender says."},
            "size": COUNT,
            "sha256": {"type": "string", "pattern": "^[0-9a-f]{64}$"},
            "created_at": TIME,
            "expires_at": {**TIME, "description": "Later once a task takes the file."},
            "ttl": {"type": "number", "description": "Seconds, as its sender wanted."},
            "links": members(
                {
                    name: {"type": "string", "format": "uri-reference"}
                    for name in ("self", "content")
                }
            ),
        },
        examples=[_EXAMPLE],
    ),
    "FileList": members(
        {
            "files": array(ref("File")),
            "next": {"type": ["string", "null"], "description": "The cursor of the next page."},
            "used_bytes": {**COUNT, "description": "What all files take, arriving ones included."},
            "max_bytes": COUNT,
        }
    ),
}
