"""A run on several processes: who starts them, what each reads, how work is dealt out."""
