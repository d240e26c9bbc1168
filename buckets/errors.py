"""The one error that people see: a sentence that says what, where, the limit, and what to do."""


class BucketsError(Exception):
    """Something a person can mend; its text is one clear line.

    Anything else that is raised is a defect of this project.
    """

    def __init__(self, message: str) -> None:
        """Keep the message.

        Args:
            message: one line: what is wrong, where, the limit, what to do.
        """
        super().__init__(message)
        self.message = message
