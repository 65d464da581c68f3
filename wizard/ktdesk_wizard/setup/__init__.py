"""From nothing to a model that runs as well as this machine can run it, step by step, interrupted or not."""
