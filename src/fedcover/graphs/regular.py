"""Only regular files are opened: a pipe would be waited for, and a device never ends."""

from pathlib import Path

from fedcover.errors import DataError


def check_regular(path: Path) -> None:
    """Refuse a folder, pipe or device, also behind a link; what is not there is left to opening."""
    try:
        other = path.exists() and not path.is_file()
    except OSError:  # a folder on the way is closed to us, which opening the file will say
        return
    if other:
        raise DataError(f"{path} is not a regular file.")
