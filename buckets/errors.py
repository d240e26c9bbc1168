"""The one error that people see, a sentence that says what, where, the limit, and what to do; others in one line."""

from buckets.printable import one_line


class BucketsError(Exception):
    """Something a person can mend; its text is one clear line.

    Anything else that is raised is a defect of this project.
    """

    def __init__(self, message: str) -> None:
        """Keep the message.

        Args:
            message: what is wrong, where, the limit, what to do; names that it quotes may hold anything.
        """
        self.message = one_line(message)
        super().__init__(self.message)


def first_line(error: BaseException) -> str:
    """The first line of what an exception says; what kind it is where it says nothing."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)


def kind_and_line(error: BaseException) -> str:
    """The kind of an exception, and the first line of what it says, as of a defect that somebody has to look for."""
    kind, said = type(error).__name__, first_line(error)
    return kind if said == kind else f"{kind}: {said}"
