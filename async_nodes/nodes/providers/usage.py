"""Beside the providers: token counts under one set of names, whoever counted them."""

from __future__ import annotations

from typing import Any

_TOTALS = ("prompt_tokens", "completion_tokens", "total_tokens")


def openai_usage(usage: Any) -> dict[str, int]:
    """Return the counts of OpenAI's ``usage`` and of those who copied it with names of their own.

    Only whole numbers count; cached tokens are part of the prompt's, reasoning tokens part of the
    completion's.
    """
    if not isinstance(usage, dict):
        return {}
    counts = {name: usage[name] for name in _TOTALS if is_count(usage.get(name))}
    if not counts:
        return {}
    cached = (
        _within(usage, "prompt_tokens_details", "cached_tokens"),
        usage.get("prompt_cache_hit_tokens"),  # DeepSeek
        usage.get("cached_tokens"),  # Moonshot
    )
    reasoning = _within(usage, "completion_tokens_details", "reasoning_tokens")
    return {**_with_total(counts), **_detail(cached, (reasoning,))}


def anthropic_usage(usage: dict[str, Any]) -> dict[str, int]:
    """Return the counts of Anthropic's ``usage``, whose input leaves out what the cache served."""
    names = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
    given = [usage[name] for name in names if is_count(usage.get(name))]
    counts = {"prompt_tokens": sum(given)} if given else {}
    if is_count(usage.get("output_tokens")):
        counts["completion_tokens"] = usage["output_tokens"]
    if not counts:
        return {}
    return {**_with_total(counts), **_detail((usage.get("cache_read_input_tokens"),), ())}


def ollama_usage(document: dict[str, Any]) -> dict[str, int]:
    """Return the counts of Ollama's last document; a prompt that was cached is not counted."""
    names = {"prompt_tokens": "prompt_eval_count", "completion_tokens": "eval_count"}
    counts = {ours: document[its] for ours, its in names.items() if is_count(document.get(its))}
    return _with_total(counts) if counts else {}


def is_count(value: Any) -> bool:
    """Tell whether a value is a whole number from 0 up."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _with_total(counts: dict[str, int]) -> dict[str, int]:
    if "total_tokens" in counts:
        return counts
    return {**counts, "total_tokens": sum(counts.values())}


def _detail(cached: tuple[Any, ...], reasoning: tuple[Any, ...]) -> dict[str, int]:
    found = {"cached_tokens": cached, "reasoning_tokens": reasoning}
    return {
        name: next(value for value in values if is_count(value))
        for name, values in found.items()
        if any(is_count(value) for value in values)
    }


def _within(usage: dict[str, Any], group: str, name: str) -> Any:
    inner = usage.get(group)
    return inner.get(name) if isinstance(inner, dict) else None
