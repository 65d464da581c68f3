"""Conversations that are kept: their messages with all versions, saved as they come, found again, moved in and out.

Knows no screen and no server.
"""
