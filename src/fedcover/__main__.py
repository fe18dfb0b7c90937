"""``python -m fedcover`` is the command ``fedcover``."""

from fedcover.cli import main

if __name__ == "__main__":
    main()
