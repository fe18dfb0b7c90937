"""What a user can mend: one clear sentence each, and the exit status that goes with it."""


class FedcoverError(Exception):
    """A refusal in one sentence; the command line prints it and leaves with ``exit_status``."""

    exit_status = 1


class DataError(FedcoverError, ValueError):
    """The data are not what they must be; the sentence names the file and the place."""


class UsageError(FedcoverError, ValueError):
    """An option or argument is wrong; the sentence names it and what it takes."""

    exit_status = 2
