"""What is wrong or slow on a machine, on what evidence, and how to mend it. Everything is read, nothing changed."""
