"""The commands: their options and help. What they do is beside this package, imported when they run."""
