"""Which part of a model goes where on a machine, and what that will be like: computed, nothing is tried."""
