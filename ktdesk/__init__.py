"""The app: the command line over wizard and engine."""
