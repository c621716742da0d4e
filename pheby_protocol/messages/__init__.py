"""All protocol messages and objects, grouped by subject."""
