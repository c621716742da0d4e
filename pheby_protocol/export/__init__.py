"""Exports: every document that is generated from the attrs classes. Each function is pure: classes in, text out."""
