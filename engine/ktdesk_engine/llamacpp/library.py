"""llama.cpp, by its Python binding: a model, and a context that computes tokens. The one module that loads it.

What the library says while it works is kept, not printed: it becomes part of the error where something fails.
"""

from __future__ import annotations

import ctypes
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ktdesk_engine.config import CacheType
from ktdesk_engine.errors import EngineError, ResourceError, UnsupportedError
from ktdesk_engine.kernels import Floats
from ktdesk_engine.llamacpp.extra import install_command

try:
    from llama_cpp import llama_cpp as lib
except (ImportError, OSError, RuntimeError) as error:  # a library that does not load is a RuntimeError there
    raise UnsupportedError(
        f"llama-cpp-python cannot be loaded ({error}): install it again with `{install_command()}`"
    ) from error

CACHE_TYPES: dict[CacheType, int] = {"float32": 0, "f16": 1, "q8_0": 8, "bf16": 30}
"""As ggml numbers them."""
FLASH_ATTENTION: dict[CacheType, int] = {"float32": 0, "f16": -1, "bf16": -1, "q8_0": 1}
"""It rounds more: 0 never. -1 where it can: it is quick over cells of others. 1 always: values in blocks need it."""
ERROR_LEVEL = 4
MAX_SEQUENCES = 256
"""Ids of sequences that the library knows."""
MAX_ROWS = 64
"""Tokens whose logits one call gives."""

_said: deque[str] = deque(maxlen=8)
"""Its errors, of all threads."""


def _listen(level: int, text: bytes, _: ctypes.c_void_p) -> None:
    if level == ERROR_LEVEL:
        _said.append(" ".join(text.decode("utf-8", "replace").split()))


_listener = lib.llama_log_callback(_listen)  # lives as long as the library
lib.llama_log_set(_listener, ctypes.c_void_p(0))
lib.llama_backend_init()


class LlamaModel:
    """A model's file as llama.cpp has it. `close` frees it; nothing may be asked after that."""

    def __init__(
        self, path: Path, *, vocab_only: bool = False, progress: Callable[[float], None] = lambda share: None
    ) -> None:
        """path: the first shard. progress: share of what is to be loaded; may raise, to cancel."""
        raised: list[BaseException] = []

        def show(share: float, _: ctypes.c_void_p) -> bool:
            try:
                progress(share)
            except BaseException as error:  # it cannot cross the library: told below
                raised.append(error)
            return not raised

        params = lib.llama_model_default_params()
        params.n_gpu_layers = 0
        params.vocab_only = vocab_only
        params.check_tensors = not vocab_only
        params.progress_callback = lib.llama_progress_callback(show)
        _said.clear()
        self._model = lib.llama_model_load_from_file(str(path).encode(), params)
        if raised:
            self.close()
            raise raised[0]
        if not self._model:
            raise UnsupportedError(f"{path}: llama.cpp cannot load it: {what_it_said()}")
        self._vocab = lib.llama_model_get_vocab(self._model)
        if not self._writes_text():
            self.close()
            raise UnsupportedError(f"{path}: it does not write a text token after token, as chats and answers need")

    def close(self) -> None:
        if self._model:
            lib.llama_model_free(self._model)
            self._model = None

    @property
    def pointer(self) -> int:
        assert self._model
        return self._model

    @property
    def vocab_size(self) -> int:
        return int(lib.llama_vocab_n_tokens(self._vocab))

    @property
    def context_length(self) -> int:
        """That it was trained for."""
        return int(lib.llama_model_n_ctx_train(self.pointer))

    def _writes_text(self) -> bool:
        """Token after token, from the tokens before: what a decoder alone does."""
        return bool(
            lib.llama_model_has_decoder(self.pointer)
            and not lib.llama_model_has_encoder(self.pointer)
            and not lib.llama_model_is_diffusion(self.pointer)
        )

    @property
    def has_states(self) -> bool:
        """Whether a sequence is, or is also, one state that every token changes: no part of it can be taken away."""
        return bool(lib.llama_model_is_recurrent(self.pointer) or lib.llama_model_is_hybrid(self.pointer))

    @property
    def adds_bos(self) -> bool:
        return bool(lib.llama_vocab_get_add_bos(self._vocab))

    @property
    def adds_eos(self) -> bool:
        return bool(lib.llama_vocab_get_add_eos(self._vocab))

    def tokenize(self, text: str) -> list[int]:
        """Of plain text: what is spelled like a control token is text too."""
        data = text.encode()
        room = len(data) + 2
        while True:
            ids = (lib.llama_token * room)()
            count = lib.llama_tokenize(self._vocab, data, len(data), ids, room, False, False)
            if count >= 0:
                return list(ids[:count])
            room = -count

    def piece(self, token_id: int) -> bytes:
        """What a token adds to a text."""
        room = 64
        while True:
            buffer = ctypes.create_string_buffer(room)
            count = lib.llama_token_to_piece(self._vocab, token_id, buffer, room, 0, True)
            if count >= 0:
                return buffer.raw[:count]
            room = -count


@dataclass(frozen=True)
class ContextSettings:
    num_cells: int
    """Tokens that all sequences have together."""
    cache_type: CacheType
    num_threads: int
    largest_batch: int
    """Tokens that are computed together."""
    max_running: int
    """Sequences that are computed; only these ids may be."""


class LlamaContext:
    """Past tokens in cells, which sequences share, and the computing of more. Sequences are ids below MAX_SEQUENCES."""

    def __init__(self, model: LlamaModel, settings: ContextSettings, vocab_size: int) -> None:
        params = lib.llama_context_default_params()
        params.n_ctx = settings.num_cells
        params.n_batch = settings.largest_batch
        params.n_ubatch = min(settings.largest_batch, 512)
        params.n_seq_max = settings.max_running
        params.n_outputs_max = params.n_outputs_max_per_seq = max(settings.max_running, MAX_ROWS)
        params.n_threads = params.n_threads_batch = settings.num_threads
        params.type_k = params.type_v = CACHE_TYPES[settings.cache_type]
        params.flash_attn_type = FLASH_ATTENTION[settings.cache_type]
        params.offload_kqv = params.op_offload = False
        params.kv_unified = params.swa_full = True
        params.no_perf = True
        _said.clear()
        self._context = lib.llama_init_from_model(model.pointer, params)
        if not self._context:
            raise ResourceError(
                f"llama.cpp cannot make a cache for {settings.num_cells} tokens ({what_it_said()}): ask for a smaller "
                "context, or cache type f16"
            )
        self._vocab_size = vocab_size
        self._memory = lib.llama_get_memory(self._context)
        self._batch = lib.llama_batch_init(settings.largest_batch, 0, 1)

    def close(self) -> None:
        if self._context:
            lib.llama_batch_free(self._batch)
            lib.llama_free(self._context)
            self._context = None

    def compute(
        self, sequences: Sequence[int], token_ids: Sequence[int], positions: Sequence[int], rows: Sequence[int]
    ) -> Floats:
        """Token t is that of its sequence at its position. rows: of these, ascending; their logits (R, V)."""
        batch = self._batch
        batch.n_tokens = num_tokens = len(token_ids)
        wanted = set(rows)
        for t in range(num_tokens):
            batch.token[t], batch.pos[t] = token_ids[t], positions[t]
            batch.n_seq_id[t], batch.seq_id[t][0] = 1, sequences[t]
            batch.logits[t] = t in wanted
        _said.clear()
        code = lib.llama_decode(self._context, batch)
        if code != 0:
            raise EngineError(f"llama.cpp cannot compute {num_tokens} tokens (code {code}): {what_it_said()}")
        logits = np.empty((len(rows), self._vocab_size), np.float32)
        for row, t in enumerate(rows):
            pointer = lib.llama_get_logits_ith(self._context, t)
            logits[row] = np.ctypeslib.as_array(pointer, shape=(self._vocab_size,))
        return logits

    def copy(self, source: int, target: int, begin: int, end: int) -> None:
        """The target sequence gets these positions of the source too: the same cells."""
        lib.llama_memory_seq_cp(self._memory, source, target, begin, end)

    def remove(self, sequence: int, begin: int = 0, end: int = -1) -> None:
        """Positions from begin to before end, -1: all. Cells that no sequence has any more are free."""
        if not lib.llama_memory_seq_rm(self._memory, sequence, begin, end):
            lib.llama_memory_seq_rm(self._memory, sequence, -1, -1)
            raise EngineError(f"llama.cpp cannot take back tokens {begin} to {end} of a sequence of this model")


def what_it_said() -> str:
    """The first of its errors since the last call: the others follow from it."""
    return _said[0] if _said else "it does not say why"
