"""What was computed once is not computed again: a radix tree over pages of keys and values, in three tiers."""
