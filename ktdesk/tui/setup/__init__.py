"""The place that sets a model up: machine, model, plan, download, load."""
