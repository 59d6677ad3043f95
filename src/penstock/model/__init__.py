"""The shared vocabulary: changes, schemas, types, positions. Imports nothing of ours but the errors."""
