"""Text to token ids and back, as the vocabulary of a GGUF file says."""
