"""The sandbox: a small replicated cluster in one process, for demos and fault simulation. It is not a database."""
