"""A halo that comes and goes part by part, so that memory holds one part of it."""
