"""`python -m farwarp`: the command line program."""

import os
import sys


def main() -> None:
    program = os.path.join(os.path.dirname(__file__), "bin", "farwarp")
    try:
        os.execv(program, [program, *sys.argv[1:]])
    except OSError as error:
        sys.exit(f"farwarp cannot run {program}: {error}")


if __name__ == "__main__":
    main()
