"""One file an architecture family: names, shapes, routing, the order of operations."""
