"""Reading GGUF files: mapped, strict, in shards; and their metadata by type and range."""
