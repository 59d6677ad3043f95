"""The control plane: statements, what they do, and the catalog they do it to."""
