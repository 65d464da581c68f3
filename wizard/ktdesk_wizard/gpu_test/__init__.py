"""The self-test of an accelerator: what it computes against the references, and what it and its link give."""
