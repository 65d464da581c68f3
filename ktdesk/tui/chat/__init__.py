"""Chat: the conversations, one of them, and where the next message is written."""
