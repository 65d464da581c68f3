"""The place of the server: where it is, how clients reach it, what it logs."""
