"""Several steps an epoch, each on a batch: sampled, clustered, sliced, with control variates."""
