"""Conversations to prompts, by the template of a GGUF file, in a process of its own."""
