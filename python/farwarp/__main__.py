"""`python -m farwarp`: the command line program."""

import os
import sys


def path() -> str:
    """Where the program is."""
    return os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", "farwarp")


def main() -> None:
    try:
        os.execv(path(), [path(), *sys.argv[1:]])
    except OSError as error:
        sys.exit(f"farwarp cannot run {path()}: {error}")


if __name__ == "__main__":
    main()
