"""Many requests at once over one reading of the weights: who is computed when, and who must wait or is refused."""
