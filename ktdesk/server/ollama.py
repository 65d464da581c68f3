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
from ktdesk.server.answering import Call, answered
from ktdesk.server.answers import Chunk, Usage, WholeAnswer, answer_chunks, whole_answer
from ktdesk.server.errors import refusal_of
from ktdesk.server.hosting import ModelHost
from ktdesk.server.known_models import KnownModel
from ktdesk.server.model_headers import ModelHeader
from ktdesk.server.ollama_wishes import chat_wanted, generate_wanted, raw_wanted
from ktdesk.server.served_model import Prepared, ServedModel
from ktdesk.server.streaming import json_line, streamed_or_whole, unless_gone
from ktdesk_engine.chat.parsing.parts import Content, Reasoning

Shape = Callable[[WholeAnswer], dict[str, Any]]
"""What of an answer stands in one line."""


def ollama_routes(host: ModelHost) -> APIRouter:
    router = APIRouter(prefix="/api", tags=["Ollama"])

    @router.post("/chat", operation_id="ollama_chat", responses=streamed_or_whole("application/x-ndjson"))
    async def chat(body: types.OllamaChatBody, request: Request) -> Response:
        return await answered(
            host,
            request,
            _call(body),
            lambda model: model.prepare_chat(chat_wanted(body)),
            lambda model, prepared: OllamaWriter(model, prepared, _message),
            "application/x-ndjson",
        )

    @router.post("/generate", operation_id="ollama_generate", responses=streamed_or_whole("application/x-ndjson"))
    async def generate(body: types.GenerateBody, request: Request) -> Response:
        if not body.prompt and body.unloads:
            known = host.known.find(body.model)
            host.let_go(known)
            return JSONResponse(_loaded(known.name, "unload"))
        if not body.prompt:  # clients load a model so
            model = await unless_gone(request, host.model(request.state.uses, body.model))
            return JSONResponse(_loaded(model.name, "load"))
        return await answered(
            host,
            request,
            _call(body),
            lambda model: _prepared(model, body),
            lambda model, prepared: OllamaWriter(model, prepared, _response),
            "application/x-ndjson",
        )

    @router.get("/tags", operation_id="ollama_tags")
    async def tags() -> dict[str, Any]:
        known = await asyncio.to_thread(host.known.all)
        return {"models": [await _model_facts(host, model) for model in known]}

    @router.get("/ps", operation_id="ollama_ps")
    async def ps() -> dict[str, Any]:
        loaded = [model for model in host.known.all() if host.loaded(model) is not None]
        return {"models": [{**await _model_facts(host, model), "size_vram": 0} for model in loaded]}

    @router.post("/show", operation_id="ollama_show")
    async def show(body: types.ShowBody) -> dict[str, Any]:
        known = host.known.find(body.model or body.name)
        header = await asyncio.to_thread(host.headers.of, known)
        capabilities = ["completion", *(["tools"] if "tools" in header.template else [])]
        facts = {"template": header.template, "details": _details(header), "capabilities": capabilities}
        about = {"modelfile": "", "parameters": "", "modified_at": _modified(known)}
        return {**about, **facts, "model_info": dict(header.keys)}

    @router.get("/version", operation_id="ollama_version")
    async def version() -> dict[str, str]:
        return {"version": metadata.version("ktdesk")}

    return router


def _loaded(name: str, done_reason: str) -> dict[str, Any]:
    return {"model": name, "created_at": _now(), "response": "", "done": True, "done_reason": done_reason}


def _prepared(model: ServedModel, body: types.GenerateBody) -> Prepared:
    return model.prepare_text(raw_wanted(body)) if body.raw else model.prepare_chat(generate_wanted(body))


def _call(body: types.AnswerBody) -> Call:
    """Streamed unless told otherwise."""
    return Call(body.model, body.stream is not False, body.options.deadline_seconds if body.options else None)


class OllamaWriter:
    """One answer: a line for each step that says something. A tool call is told when it is whole."""

    def __init__(self, model: ServedModel, prepared: Prepared, shape: Shape) -> None:
        self._model = model
        self._prepared = prepared
        self._shape = shape

    async def whole(self) -> dict[str, Any]:
        answer = await whole_answer(self._model, self._prepared)
        return {**self._head, **self._shape(answer), **_end(answer.finish_reason, answer.usage)}

    async def texts(self) -> AsyncGenerator[str, None]:
        has_begun = False
        try:
            async for line in self._lines():
                has_begun = True
                yield json_line(line) + "\n"
        except Exception as error:
            if not has_begun:
                raise
            yield json_line({"error": refusal_of(error).message}) + "\n"

    async def _lines(self) -> AsyncGenerator[dict[str, Any], None]:
        so_far = WholeAnswer()
        async with aclosing(answer_chunks(self._model, self._prepared)) as chunks:
            async for chunk in chunks:
                so_far.add(chunk)
                step = _text_of(chunk)
                if chunk.finish_reason is not None:
                    step.calls = so_far.calls
                if step.content or step.reasoning or step.calls:
                    yield {**self._head, **self._shape(step), "done": False}
                if chunk.finish_reason is not None:
                    end = _end(chunk.finish_reason, chunk.usage or Usage())
                    yield {**self._head, **self._shape(WholeAnswer()), **end}

    @property
    def _head(self) -> dict[str, Any]:
        return {"model": self._model.name, "created_at": _now()}


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


async def _model_facts(host: ModelHost, known: KnownModel) -> dict[str, Any]:
    header = await asyncio.to_thread(host.headers.of, known)
    facts = {"name": known.name, "model": known.name, "modified_at": _modified(known), "size": known.num_bytes}
    return {**facts, "digest": "", "details": _details(header)}


def _details(header: ModelHeader) -> dict[str, Any]:
    family = {"family": header.architecture, "families": [header.architecture]}
    return {"format": "gguf", **family, "parameter_size": header.size_label, "quantization_level": header.quantization}


def _modified(known: KnownModel) -> str:
    return datetime.fromtimestamp(known.modified, timezone.utc).isoformat()


def _now() -> str:
    return datetime.now(timezone.utc).isoformat().replace("+00:00", "Z")
