"""Hubs of models: what a repository has, where a file's bytes are, and reading ranges of them."""
