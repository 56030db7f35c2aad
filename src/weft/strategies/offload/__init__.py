"""The graph on the host, a layer on the device chunk by chunk."""
