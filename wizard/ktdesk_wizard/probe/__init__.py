"""What the machine is: facts, each with its source and how far it can be trusted."""
