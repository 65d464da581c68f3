"""The models in the user's data folder: what is there, what it should be, and taking it away."""
