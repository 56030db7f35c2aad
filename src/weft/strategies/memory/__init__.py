"""What a step keeps for backward, planned for the memory there is."""
