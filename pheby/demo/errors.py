"""What can go wrong in the demo, each with one plain sentence for the person at the keyboard."""

from __future__ import annotations


class DemoError(Exception):
    """A failure whose text is written to be shown, and never holds a secret."""


class UnsuitablePythonError(DemoError):
    """No interpreter on this machine can run the wanted Hermes line."""


class EnvironmentFailedError(DemoError):
    """A Hermes environment could not be made."""


class ForeignHomeError(DemoError):
    """The folder holds something the demo did not make."""


class BrokenHomeError(DemoError):
    """A home of the demo's own cannot be read any more."""


class GatewayFailedError(DemoError):
    """The gateway ended, or did not become ready in time."""


class ModelUnreachableError(DemoError):
    """The given model server does not answer as expected."""
