"""The full-screen terminal app: a client of the server and of the wizard. Only what is here imports textual."""
