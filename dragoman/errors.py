"""The errors a user can cause. Everything else that escapes is a bug and shows its traceback.

DragomanError                  the caller's mistake: exit code 2
├── ConfigError                a recipe, an override or a flag
├── DataError                  text, a vocabulary, a store
├── ModelError                 a model folder, a checkpoint
│   └── FormatError            whole, but written by a version of dragoman that this one cannot read
└── RunError                   nobody's mistake, a run that failed: exit code 1
"""


class DragomanError(Exception):
    """Where something is wrong, what is wrong there, and what the reader can do about it."""

    exit_code = 2

    def __init__(self, where: object, what: str, hint: str | None = None) -> None:
        super().__init__(f"{where}: {what}")
        self.where = where
        self.what = what
        self.hint = hint

    def report(self) -> str:
        """The text the command line prints on stderr."""
        lines = [f"error: {self.where}: {line}" for line in self.what.splitlines()]
        return "\n".join(lines) + (f"\n\nhint: {self.hint}" if self.hint else "")


class ConfigError(DragomanError):
    """A recipe, an override or a flag that cannot be right."""


class DataError(DragomanError):
    """Text, a vocabulary or a store that cannot be used."""


class ModelError(DragomanError):
    """A model folder or checkpoint that cannot be used."""


class FormatError(ModelError):
    """A model folder that is whole, but in a format that this version does not read."""


class RunError(DragomanError):
    """A run that failed although its input was right: a loss that is not finite, a full disk."""

    exit_code = 1
