"""Every exception that weft raises on purpose.

WeftError
├── InputError        the user's mistake: one line, exit code 2
│   ├── GraphError    a graph, a feature, a label or a mask that cannot be right
│   ├── FormatError   a file that is missing, damaged or not ours
│   ├── RecipeError   a recipe key or value, or an option of a command
│   ├── UnknownName   a name that no registry holds
│   ├── MissingExtra  an optional dependency that is not installed
│   ├── PartitionError a partitioner that crashed, took too long or gave rubbish: choose another
│   └── TrainingError numbers that stopped being numbers: the settings must change
└── WorkerLost        a worker died, raised or stalled: exit code 3

WeftWarning           something works, but not as well as it could
DataNote              what weft decided about data by itself
"""


class WeftError(Exception):
    """The root of all errors that weft raises on purpose."""

    exit_code = 1


class InputError(WeftError, ValueError):
    """The user's mistake. The message says what was expected, what came, where, and what to do."""

    exit_code = 2


class GraphError(InputError):
    """A graph, a feature, a label or a mask that cannot be right."""


class FormatError(InputError):
    """A file that is missing, damaged or not in the format it claims."""


class RecipeError(InputError):
    """A recipe key or value, or an option of a command, that cannot be used."""


class UnknownName(InputError, KeyError):
    """A name that the registry does not hold; the message suggests the nearest one."""

    def __str__(self) -> str:
        # KeyError shows the repr of its argument; people should see the sentence.
        return str(self.args[0]) if self.args else ""


class MissingExtra(InputError, ImportError):
    """An optional dependency that is not installed; the message holds the command that installs it."""


class PartitionError(InputError):
    """A partitioner that crashed, took too long or gave rubbish; the message says what to try instead."""


class TrainingError(InputError):
    """A loss or weights that are not finite; the message names the epoch and what to change."""


class WorkerLost(WeftError):
    """A worker died, raised or stalled; the message names its rank, and so does `rank` (−1: unknown)."""

    exit_code = 3

    def __init__(self, message: str = "", rank: int = -1) -> None:
        super().__init__(message)
        self.rank = rank


class WeftWarning(UserWarning):
    """Something works, but not as well as it could."""


class DataNote(UserWarning):
    """What weft decided about data by itself, and which option decides otherwise."""
