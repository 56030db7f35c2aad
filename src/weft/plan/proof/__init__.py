"""The proof of plans: runs are planned, made, and what was counted and measured laid beside the plan."""
