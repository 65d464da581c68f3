"""The block formats of weights, and what their values are: the reference."""
