"""Why the command could not do what was asked."""

from __future__ import annotations


class InstallError(Exception):
    """One plain sentence for the owner; it holds no secret."""


class CannotEditError(InstallError):
    """A file is written in a way that Pheby does not change. It was left as it is."""


class ModifiedError(InstallError):
    """What Pheby had written was changed since by somebody else."""

    def __init__(self, what: list[str]) -> None:
        super().__init__(
            "These were changed since Pheby wrote them: " + ", ".join(what) + ". Nothing was done. "
            "To go on all the same, and lose those changes: --confirm-modified"
        )
        self.what = what
