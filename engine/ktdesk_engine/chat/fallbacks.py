"""Chat templates for files that hold none: chosen by the tokens of the vocabulary, without tools."""

from __future__ import annotations

from collections.abc import Container
from typing import NamedTuple


class Fallback(NamedTuple):
    name: str
    tokens: tuple[str, ...]
    """A vocabulary that has all of these was made for this form."""
    template: str
    stop: tuple[str, ...] = ()
    """Text that ends an answer, where no token does."""


CHATML = """\
{{ bos_token }}
{%- for message in messages %}
    {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}
"""

LLAMA_3 = """\
{{ bos_token }}
{%- for message in messages %}
    {{- '<|start_header_id|>' + message.role + '<|end_header_id|>\\n\\n' }}
    {{- message.content | trim + '<|eot_id|>' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
{%- endif %}
"""

DEEPSEEK = """\
{{ bos_token }}
{%- for message in messages %}
    {%- if message.role == 'assistant' %}
        {{- '<\uff5cAssistant\uff5c>' + message.content + eos_token }}
    {%- elif message.role == 'user' %}
        {{- '<\uff5cUser\uff5c>' + message.content }}
    {%- else %}
        {{- message.content }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<\uff5cAssistant\uff5c>' }}
{%- endif %}
"""

GEMMA = """\
{{ bos_token }}
{%- set ns = namespace(system='') %}
{%- for message in messages %}
    {%- if message.role == 'system' %}
        {%- set ns.system = ns.system + message.content | trim + '\\n\\n' %}
    {%- elif message.role == 'assistant' %}
        {{- '<start_of_turn>model\\n' + message.content | trim + '<end_of_turn>\\n' }}
    {%- else %}
        {{- '<start_of_turn>user\\n' + ns.system + message.content | trim + '<end_of_turn>\\n' }}
        {%- set ns.system = '' %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<start_of_turn>model\\n' }}
{%- endif %}
"""

MISTRAL = """\
{{ bos_token }}
{%- set ns = namespace(system='') %}
{%- for message in messages %}
    {%- if message.role == 'system' %}
        {%- set ns.system = ns.system + message.content + '\\n\\n' %}
    {%- elif message.role == 'assistant' %}
        {{- ' ' + message.content | trim + eos_token }}
    {%- else %}
        {{- '[INST] ' + ns.system + message.content + ' [/INST]' }}
        {%- set ns.system = '' %}
    {%- endif %}
{%- endfor %}
"""

PLAIN = """\
{{ bos_token }}
{%- for message in messages %}
    {%- if message.role == 'assistant' %}
        {{- 'Assistant: ' + message.content | trim + '\\n' }}
    {%- elif message.role == 'user' %}
        {{- 'User: ' + message.content | trim + '\\n' }}
    {%- else %}
        {{- message.content | trim + '\\n\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- 'Assistant:' }}
{%- endif %}
"""

FALLBACKS = (
    Fallback("chatml", ("<|im_start|>", "<|im_end|>"), CHATML),
    Fallback("llama-3", ("<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"), LLAMA_3),
    Fallback("deepseek", ("<\uff5cUser\uff5c>", "<\uff5cAssistant\uff5c>"), DEEPSEEK),
    Fallback("gemma", ("<start_of_turn>", "<end_of_turn>"), GEMMA),
    Fallback("mistral", ("[INST]", "[/INST]"), MISTRAL),
    Fallback("plain", (), PLAIN, stop=("\nUser:",)),
)


def choose_fallback(tokens: Container[str]) -> Fallback:
    """The first whose tokens the vocabulary has; the last has none and always fits."""
    return next(fallback for fallback in FALLBACKS if all(token in tokens for token in fallback.tokens))
