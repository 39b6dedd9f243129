"""What an audit of a whole store costs: time and memory by size, beside the time to read the same bytes."""
