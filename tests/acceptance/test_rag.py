"""Answers from documents over the whole product: the index of one process answers in another."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.cli_processes import command, environ
from tests.acceptance.stack import Stack

pytestmark = [pytest.mark.needs("redis"), pytest.mark.timeout(180)]

KEY = "sk-a-key-that-nobody-sees"
MODEL = ("--ttft-ms", "5", "--gap-ms", "1", "--tokens", "4", "--api-key", KEY)
TOWN = [
    {"id": "bakery", "text": "The bakery opens at six.", "metadata": {"page": 1}},
    {"id": "bank", "text": "The bank closes at noon."},
]


@pytest.fixture(scope="module")
def rag_stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """Return a stack whose model wants a key."""
    stack = Stack(tmp_path_factory.mktemp("rag"), model=MODEL)
    try:
        stack.start()
        yield stack
    finally:
        stack.stop()


def given(stack: Stack, **inputs: Any) -> dict[str, Any]:
    """Return inputs of either node."""
    return {"base_url": f"http://127.0.0.1:{stack.model_port}/v1", "api_key": KEY, **inputs}


def question(stack: Stack, **inputs: Any) -> dict[str, Any]:
    """Return inputs of ``rag.answer``."""
    return given(stack, model="sim:echo", question="When does the bakery open?", **inputs)


def ended(stack: Stack, node: str, inputs: dict[str, Any]) -> dict[str, Any]:
    """Return the record of a task that has succeeded."""
    record = stack.wait(stack.submit(node, inputs), 30)
    assert record["state"] == "Succeeded", record
    return record


def test_every_process_finds_an_index(rag_stack: Stack) -> None:
    """A CPU worker makes it; each I/O worker, the next one as well, answers from the newest."""
    made = ended(rag_stack, "rag.index", given(rag_stack, name="town", documents=TOWN, model="sim"))
    assert made["output"]["pieces"] == 2
    ask = question(rag_stack, index="town", retrieval="hybrid", top_k=1)

    first = ended(rag_stack, "rag.answer", ask)
    rag_stack.restart("io0")
    second = ended(rag_stack, "rag.answer", ask)
    assert first["output"] == second["output"]
    assert first["output"]["sources"][0]["metadata"] == {"page": 1}
    assert "> The bakery opens at six." in first["output"]["answer"]
    assert first["usage"]["embedding_tokens"] > 0
    assert first["usage"]["completion_tokens"] > 0

    newer = [{"id": "newer", "text": "The bakery opens at seven."}]
    ended(rag_stack, "rag.index", given(rag_stack, name="town", documents=newer))
    ask["retrieval"] = "bm25"
    assert ended(rag_stack, "rag.answer", ask)["output"]["sources"][0]["id"] == "newer"


def test_an_index_that_is_not_there_fails_at_once(rag_stack: Stack) -> None:
    """It is not tried again."""
    record = rag_stack.wait(rag_stack.submit("rag.answer", question(rag_stack, index="nowhere")))

    assert (record["state"], record["error"]["code"]) == ("Failed", "index_not_found")
    assert record["attempt"] == 1


def test_the_stream_begins_with_the_sources_and_no_key_is_in_it(rag_stack: Stack) -> None:
    """The first chunk tells them; keys are in no event, record, log line or listing."""
    ask = question(
        rag_stack,
        documents=TOWN,
        retrieval="embedding",
        embedding_model="sim",
        embedding_api_key=KEY,
        top_k=1,
    )
    task_id = rag_stack.submit("rag.answer", ask)
    with rag_stack.client.events(task_id) as feed:
        events = feed.until("done")
    record = rag_stack.wait(task_id)
    chunks = [json.loads(event.data) for event in events if event.type == "chunk"]

    assert chunks[0]["data"] == {"sources": record["output"]["sources"]}
    assert "".join(chunk["text"] for chunk in chunks[1:]) == record["output"]["answer"]
    assert (record["inputs"]["api_key"], record["inputs"]["embedding_api_key"]) == (
        "[redacted]",
        "[redacted]",
    )
    paths = (f"/v1/tasks/{task_id}/logs", f"/v1/tasks/{task_id}/result", "/v1/tasks?fields=full")
    answers = [rag_stack.client.request("GET", path).body.decode() for path in paths]
    published = rag_stack.channels.of(task_id)
    shown = [record, *(event.data for event in events), *answers, *published, rag_stack.logs(9_999)]
    assert published
    assert KEY not in json.dumps(shown, default=str)


def test_a_cancel_while_documents_are_embedded_ends_the_requests(rag_stack: Stack) -> None:
    """The model sees its connections close, and the answering model is never asked."""
    texts = [f"text {number}" for number in range(200)]
    ask = question(rag_stack, documents=texts, retrieval="embedding", embedding_model="sim:hang")
    rag_stack.reset_model()
    task_id = rag_stack.submit("rag.answer", ask)
    rag_stack.until(lambda: rag_stack.model_stats()["live"] == 4, "the model is not asked")

    assert rag_stack.client.cancel(task_id, wait=5).json["state"] == "Cancelled"
    rag_stack.until(lambda: rag_stack.model_stats()["live"] == 0, "the model still works", 5.0)
    assert rag_stack.model_stats()["requests"] == 4


def test_a_file_is_a_document(rag_stack: Stack, tmp_path: Path) -> None:
    """On the command line it is named, and its name is the source's id."""
    path = tmp_path / "营业时间.txt"
    path.write_text("面包店早上六点开门。银行中午十二点关门。", "utf-8")
    words = [f"{name}={value}" for name, value in given(rag_stack, model="sim:echo").items()]
    url = f"http://127.0.0.1:{rag_stack.client.port}"
    done = command(
        *("run", "rag.answer", "question=面包店几点开门?", f"documents=@{path}", *words),
        *("--wait", "--url", url),
        env=environ(),
    )

    assert done.returncode == 0, done.stderr
    output = json.loads(done.stdout)
    assert output["sources"][0]["id"] == "营业时间.txt"
    assert "> 面包店早上六点开门。" in output["answer"]
    assert KEY not in done.stdout + done.stderr
