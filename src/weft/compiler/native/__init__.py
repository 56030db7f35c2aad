"""Programs on the native core."""
