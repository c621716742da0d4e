"""Pheby in an owner's own Hermes home: put in, looked at, updated and taken out again."""
