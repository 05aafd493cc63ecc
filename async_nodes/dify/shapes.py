"""What the daemon asks of each YAML file of a plugin, as JSON Schemas.

After its declarations of manifest, tool provider, tool, endpoint group and endpoint. Members that
are not named here are left alone, as there.
"""

from __future__ import annotations

from typing import Any, Final

NAME = r"^[a-zA-Z0-9_-]+$"
VERSION = r"^\d{1,4}(\.\d{1,4}){2}(-\w{1,16})?$"
MOMENT = r"^\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)$"
TAGS: Final = [
    "search",
    "image",
    "videos",
    "weather",
    "finance",
    "design",
    "travel",
    "social",
    "news",
    "medical",
    "productivity",
    "education",
    "business",
    "entertainment",
    "utilities",
    "other",
    "agent",
    "rag",
    "trigger",
]
PARAMETER_TYPES: Final = [
    "string",
    "number",
    "boolean",
    "select",
    "secret-input",
    "file",
    "files",
    "app-selector",
    "model-selector",
    "any",
    "dynamic-select",
    "array",
    "object",
    "checkbox",
    "date",
    "date-range",
]
CREDENTIAL_TYPES: Final = [
    "secret-input",
    "text-input",
    "select",
    "boolean",
    "model-selector",
    "app-selector",
    "array[tools]",
]
_MODELS: Final = (
    "llm",
    "text-embedding",
    "rerank",
    "tts",
    "speech2text",
    "moderation",
    "vision",
    "document",
    "tool-call",
)
_VALUES: Final = (
    "string",
    "number",
    "object",
    "array[number]",
    "array[string]",
    "array[object]",
    "array[file]",
)
SCOPES: Final = {
    "app-selector": ("all", "chat", "workflow", "completion"),
    "model-selector": _MODELS,
    "any": _VALUES,
}
"""The words that narrow what a selector offers."""

METHODS: Final = ["HEAD", "GET", "POST", "PUT", "DELETE", "OPTIONS"]

Schema = dict[str, Any]


def _text(most: int, least: int = 1) -> Schema:
    return {"type": "string", "minLength": least, "maxLength": most}


def _object(required: dict[str, Schema], optional: dict[str, Schema] | None = None) -> Schema:
    properties = {**required, **(optional or {})}
    return {"type": "object", "properties": properties, "required": list(required)}


def _list_of(items: Schema, least: int = 0) -> Schema:
    return {"type": "array", "items": items, "minItems": least}


LABEL: Final = _object(
    {"en_US": _text(1023)}, {name: _text(1023, 0) for name in ("zh_Hans", "ja_JP", "pt_BR")}
)
_PATHS: Final = _list_of(_text(128))
_SWITCH: Final = _object({}, {"enabled": {"type": "boolean"}})
_PERMISSION: Final = _object(
    {},
    {
        **dict.fromkeys(("tool", "node", "endpoint", "app"), _SWITCH),
        "model": _object(
            {},
            {
                key: {"type": "boolean"}
                for key in (
                    "enabled",
                    "llm",
                    "text_embedding",
                    "rerank",
                    "tts",
                    "speech2text",
                    "moderation",
                )
            },
        ),
        "storage": _object(
            {"size": {"type": "integer", "minimum": 1024, "maximum": 1 << 30}},
            {"enabled": {"type": "boolean"}},
        ),
    },
)
_META: Final = _object(
    {
        "version": {"type": "string", "pattern": VERSION},
        "arch": _list_of({"enum": ["amd64", "arm64"]}, 1),
        "runner": _object(
            {"language": {"const": "python"}, "version": _text(128), "entrypoint": _text(256)}
        ),
    },
    {"minimum_dify_version": {"type": "string"}},
)

MANIFEST: Final = _object(
    {
        "version": {"type": "string", "pattern": VERSION},
        "type": {"const": "plugin"},
        "author": {"type": "string", "pattern": r"^[a-z0-9_-]{1,64}$"},
        "name": {"type": "string", "pattern": r"^[a-z0-9_-]{1,128}$"},
        "label": LABEL,
        "description": LABEL,
        "icon": _text(128),
        "resource": _object(
            {"memory": {"type": "integer", "minimum": 1}}, {"permission": _PERMISSION}
        ),
        "plugins": _object(
            {},
            dict.fromkeys(
                ("tools", "models", "endpoints", "agent_strategies", "datasources", "triggers"),
                _PATHS,
            ),
        ),
        "meta": _META,
        "created_at": {"type": "string", "pattern": MOMENT},
    },
    {
        "icon_dark": _text(128),
        "tags": _list_of({"enum": TAGS}),
        "privacy": {"type": "string"},
        "repo": {"type": "string", "pattern": r"^https?://"},
    },
)

_OPTION: Final = _object({"value": {"type": "string", "minLength": 1}, "label": LABEL})
_SHORT_OPTION: Final = _object({"value": _text(127), "label": LABEL})
_CREDENTIAL: Final = _object(
    {"type": {"enum": CREDENTIAL_TYPES}, "label": LABEL},
    {
        "required": {"type": "boolean"},
        "default": {"type": ["string", "number", "boolean", "null"]},
        "options": {**_list_of(_SHORT_OPTION), "maxItems": 127},
        "help": LABEL,
        "placeholder": LABEL,
        "url": {"type": "string"},
    },
)
_SOURCE: Final = _object({"python": _object({"source": _text(256)})})

PROVIDER: Final = _object(
    {
        "identity": _object(
            {
                "author": _text(64),
                "name": {"type": "string", "pattern": NAME},
                "label": LABEL,
                "icon": _text(128),
            },
            {"description": LABEL, "icon_dark": _text(128), "tags": _list_of({"enum": TAGS})},
        ),
        "tools": _list_of(_text(128), 1),
        "extra": _SOURCE,
    },
    {"credentials_for_provider": {"type": "object", "additionalProperties": _CREDENTIAL}},
)

_PARAMETER: Final = _object(
    {
        "name": _text(1023),
        "label": LABEL,
        "human_description": LABEL,
        "type": {"enum": PARAMETER_TYPES},
        "form": {"enum": ["schema", "form", "llm"]},
    },
    {
        "required": {"type": "boolean"},
        "llm_description": {"type": "string"},
        "min": {"type": "number"},
        "max": {"type": "number"},
        "multiple": {"type": "boolean"},
        "precision": {"type": "integer"},
        "options": _list_of(_OPTION),
    },
)
TOOL: Final = _object(
    {
        "identity": _object(
            {"author": _text(64), "name": {"type": "string", "pattern": NAME}, "label": LABEL}
        ),
        "description": _object({"human": LABEL, "llm": _text(10_000)}),
        "extra": _SOURCE,
    },
    {
        "parameters": _list_of(_PARAMETER),
        "output_schema": _object({"type": {"const": "object"}, "properties": {"type": "object"}}),
        "has_runtime_parameters": {"type": "boolean"},
    },
)

GROUP: Final = _object(
    {"endpoints": _list_of(_text(128), 1)},
    {"settings": _list_of({**_CREDENTIAL, "required": [*_CREDENTIAL["required"], "name"]})},
)
ENDPOINT: Final = _object(
    {"path": {"type": "string", "pattern": "^/"}, "method": {"enum": METHODS}, "extra": _SOURCE},
    {"hidden": {"type": "boolean"}},
)
