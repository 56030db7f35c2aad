"""What of a message travels: to other ranks, or a piece at a time."""
