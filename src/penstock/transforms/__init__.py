"""What is done to records between the merge and the sinks: filters, columns, masks, names."""
