"""Change logs as a source: what one agent has captured, captured again."""
