"""Fetching models: whole, checked, and gone on with after any interruption."""
