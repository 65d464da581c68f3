"""From nothing to a model that can be run. Today: the demo model."""
