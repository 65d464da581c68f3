"""The place that shows what the machine does, against what it could do."""
