"""The Delta sink: current rows and the history of changes in Delta tables."""
