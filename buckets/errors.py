"""The one error that people see: a sentence that says what, where, the limit, and what to do."""

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
