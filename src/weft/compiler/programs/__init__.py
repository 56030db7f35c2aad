"""Functions of an edge as short programs: their gradients, costs and the choice of what runs them."""
