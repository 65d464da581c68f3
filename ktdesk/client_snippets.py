"""What to type so that a client library talks to a server of ktdesk."""

from __future__ import annotations

CLIENTS = ("openai", "anthropic", "ollama", "curl")


def snippet(client: str, url: str, model: str, needs_key: bool) -> str:
    """Python, or a shell's line; the key is named, never shown."""
    key = "KTDESK_API_KEY" if needs_key else None
    return _SNIPPETS[client](url, model, key)


def _openai(url: str, model: str, key: str | None) -> str:
    return (
        f"{_imports('from openai import OpenAI', key)}\n"
        f'client = OpenAI(base_url="{url}/v1", api_key={_key(key)})\n'
        f'answer = client.chat.completions.create(model="{model}", '
        'messages=[{"role": "user", "content": "Hello"}])\n'
        "print(answer.choices[0].message.content)"
    )


def _anthropic(url: str, model: str, key: str | None) -> str:
    return (
        f"{_imports('from anthropic import Anthropic', key)}\n"
        f'client = Anthropic(base_url="{url}", api_key={_key(key)})\n'
        f'answer = client.messages.create(model="{model}", max_tokens=500, '
        'messages=[{"role": "user", "content": "Hello"}])\n'
        "print(answer.content[0].text)"
    )


def _ollama(url: str, model: str, key: str | None) -> str:
    headers = "" if key is None else f', headers={{"Authorization": "Bearer " + {_key(key)}}}'
    return (
        f"{_imports('from ollama import Client', key)}\n"
        f'client = Client(host="{url}"{headers})\n'
        f'answer = client.chat(model="{model}", messages=[{{"role": "user", "content": "Hello"}}])\n'
        "print(answer.message.content)"
    )


def _curl(url: str, model: str, key: str | None) -> str:
    header = "" if key is None else f' -H "Authorization: Bearer ${key}"'
    return (
        f'curl {url}/v1/chat/completions -H "Content-Type: application/json"{header} \\\n'
        f"""  -d '{{"model": "{model}", "messages": [{{"role": "user", "content": "Hello"}}]}}'"""
    )


def _imports(line: str, key: str | None) -> str:
    return line if key is None else f"import os\n{line}"


def _key(name: str | None) -> str:
    return '"any"' if name is None else f'os.environ["{name}"]'


_SNIPPETS = {"openai": _openai, "anthropic": _anthropic, "ollama": _ollama, "curl": _curl}
