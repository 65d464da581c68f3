"""The headless server: OpenAI's, Anthropic's and Ollama's interfaces over one engine. Only here is HTTP spoken."""
