"""Readers of Java's key store formats, for the secret keys in them. All of them are bounded; none keeps a password."""
