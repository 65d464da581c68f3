"""Measures a model, or one layer, against what the machine can do at that moment."""
