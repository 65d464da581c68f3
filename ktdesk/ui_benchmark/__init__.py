"""Measures the app as a user has it: a process of its own in a terminal, beside a server that says what it is told."""
