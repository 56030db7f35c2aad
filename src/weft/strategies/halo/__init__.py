"""Edge cuts: workers own nodes, an exchange brings the rows of others."""
