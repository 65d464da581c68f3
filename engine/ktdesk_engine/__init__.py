"""The engine: from a GGUF file to tokens."""
