"""What is learned of a graph: what a target is, how its outputs are made, and what they are held to."""
