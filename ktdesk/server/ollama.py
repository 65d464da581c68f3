"""Ollama's interface: `/api/chat`, `/api/generate`, `/api/tags`, `/api/show`, `/api/ps`, `/api/version`."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from datetime import datetime, timezone
from importlib import metadata
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse, Response

from ktdesk.server import ollama_types as types
from ktdesk.server.answers import Chunk, Usage, WholeAnswer, answer_chunks, whole_answer
from ktdesk.server.errors import refusal_of
from ktdesk.server.hosting import ModelHost
from ktdesk.server.ollama_wishes import chat_wanted, generate_wanted, raw_wanted
from ktdesk.server.served_model import Prepared, ServedModel
from ktdesk.server.streaming import StreamedResponse, first_then_rest, json_line, streamed_or_whole, unless_gone
from ktdesk_engine.chat.parsing.parts import Content, Reasoning

Shape = Callable[[WholeAnswer], dict[str, Any]]
"""What of an answer stands in one line."""


def ollama_routes(host: ModelHost) -> APIRouter:
    router = APIRouter(prefix="/api", tags=["Ollama"])

    @router.post("/chat", operation_id="ollama_chat", responses=streamed_or_whole("application/x-ndjson"))
    async def chat(body: types.OllamaChatBody, request: Request) -> Response:
        model = host.model(body.model)
        prepared = await asyncio.to_thread(lambda: model.prepare_chat(chat_wanted(body)))
        return await _respond(request, model, prepared, _message, streams=body.stream is not False)

    @router.post("/generate", operation_id="ollama_generate", responses=streamed_or_whole("application/x-ndjson"))
    async def generate(body: types.GenerateBody, request: Request) -> Response:
        model = host.model(body.model)
        if not body.prompt:  # clients load a model so
            loaded = {"model": model.name, "created_at": _now(), "response": "", "done": True, "done_reason": "load"}
            return JSONResponse(loaded)
        prepared = await asyncio.to_thread(lambda: _prepared(model, body))
        return await _respond(request, model, prepared, _response, streams=body.stream is not False)

    @router.get("/tags", operation_id="ollama_tags")
    async def tags() -> dict[str, Any]:
        return {"models": [_model_facts(host)]}

    @router.get("/ps", operation_id="ollama_ps")
    async def ps() -> dict[str, Any]:
        return {"models": [{**_model_facts(host), "size_vram": 0} for _ in host.models]}

    @router.post("/show", operation_id="ollama_show")
    async def show(body: types.ShowBody) -> dict[str, Any]:
        model = host.model(body.model or body.name)
        info = {
            key: value
            for key, value in model.engine.file.metadata.items()
            if isinstance(value, (str, int, float, bool)) and not key.startswith("tokenizer.")
        }
        template = model.engine.chat_template.source
        text = next(iter(template.templates.values()), "")
        capabilities = ["completion", *(["tools"] if "tools" in text else [])]
        facts = {"template": text, "details": _details(host), "model_info": info, "capabilities": capabilities}
        return {"modelfile": "", "parameters": "", "modified_at": _modified(host), **facts}

    @router.get("/version", operation_id="ollama_version")
    async def version() -> dict[str, str]:
        return {"version": metadata.version("ktdesk")}

    return router


def _prepared(model: ServedModel, body: types.GenerateBody) -> Prepared:
    return model.prepare_text(raw_wanted(body)) if body.raw else model.prepare_chat(generate_wanted(body))


async def _respond(
    request: Request, model: ServedModel, prepared: Prepared, shape: Shape, *, streams: bool
) -> Response:
    if streams:
        texts = await unless_gone(request, first_then_rest(_lines(model, prepared, shape)))
        return StreamedResponse(texts, "application/x-ndjson")
    answer = await unless_gone(request, whole_answer(model, prepared))
    return JSONResponse({**_head(model), **shape(answer), **_end(answer.finish_reason, answer.usage)})


async def _lines(model: ServedModel, prepared: Prepared, shape: Shape) -> AsyncGenerator[str, None]:
    """A line for each step that says something. A tool call is told when it is whole."""
    calls, has_begun = WholeAnswer(), False
    try:
        async with aclosing(answer_chunks(model, prepared)) as chunks:
            async for chunk in chunks:
                has_begun = True
                calls.add(chunk)
                step = _text_of(chunk)
                if chunk.finish_reason is not None:
                    step.calls = calls.calls
                if step.content or step.reasoning or step.calls:
                    yield json_line({**_head(model), **shape(step), "done": False}) + "\n"
                if chunk.finish_reason is not None:
                    end = _end(chunk.finish_reason, chunk.usage or Usage())
                    yield json_line({**_head(model), **shape(WholeAnswer()), **end}) + "\n"
    except Exception as error:
        if not has_begun:
            raise
        yield json_line({"error": refusal_of(error).message}) + "\n"


def _text_of(chunk: Chunk) -> WholeAnswer:
    step = WholeAnswer()
    for part in chunk.parts:
        if isinstance(part, Content):
            step.content += part.text
        elif isinstance(part, Reasoning):
            step.reasoning += part.text
    return step


def _message(answer: WholeAnswer) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": answer.content}
    if answer.reasoning:
        message["thinking"] = answer.reasoning
    if answer.calls:
        message["tool_calls"] = [
            {"function": {"name": call.name, "arguments": _arguments(call.arguments)}} for call in answer.calls
        ]
    return {"message": message}


def _response(answer: WholeAnswer) -> dict[str, Any]:
    thinking = {"thinking": answer.reasoning} if answer.reasoning else {}
    return {"response": answer.content, **thinking}


def _arguments(text: str) -> dict[str, Any]:
    """Those of a call that was cut are none."""
    try:
        value = json.loads(text)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _head(model: ServedModel) -> dict[str, Any]:
    return {"model": model.name, "created_at": _now()}


def _end(reason: str, usage: Usage) -> dict[str, Any]:
    return {
        "done": True,
        "done_reason": "length" if reason == "length" else "stop",
        "total_duration": round((usage.prefill_seconds + usage.decode_seconds) * 1e9),
        "load_duration": 0,
        "prompt_eval_count": usage.num_prompt_tokens,
        "prompt_eval_duration": round(usage.prefill_seconds * 1e9),
        "eval_count": usage.num_answer_tokens,
        "eval_duration": round(usage.decode_seconds * 1e9),
    }


def _model_facts(host: ModelHost) -> dict[str, Any]:
    size = host.path.stat().st_size if host.path.exists() else 0
    facts = {"name": host.name, "model": host.name, "modified_at": _modified(host), "size": size, "digest": ""}
    return {**facts, "details": _details(host)}


def _details(host: ModelHost) -> dict[str, Any]:
    families = [model.engine.file.metadata.get("general.architecture", "") for model in host.models]
    return {"format": "gguf", "family": families[0] if families else "", "families": families}


def _modified(host: ModelHost) -> str:
    changed = host.path.stat().st_mtime if host.path.exists() else 0
    return datetime.fromtimestamp(changed, timezone.utc).isoformat()


def _now() -> str:
    return datetime.now(timezone.utc).isoformat().replace("+00:00", "Z")
