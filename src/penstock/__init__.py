"""Penstock: change data capture for operational databases."""
