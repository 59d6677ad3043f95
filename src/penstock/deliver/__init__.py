"""Delivery: the contract of a sink, and one package for each kind of target, with one section of settings."""
