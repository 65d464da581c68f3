"""What a run of a model really took, kept, and held against what was planned."""
