"""What the machine is, each fact with the source that spoke."""
