"""What lakehouse tables share: types and values, how columns evolve, history, spooled rows, the index of keys."""
