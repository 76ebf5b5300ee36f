"""compress.py CODE_OBJECT FILE: writes what vendor/code_object.cc decompresses: the size in 8 bytes, a zlib stream."""

import pathlib
import sys
import zlib

image = pathlib.Path(sys.argv[1]).read_bytes()
pathlib.Path(sys.argv[2]).write_bytes(len(image).to_bytes(8, "little") + zlib.compress(image, 9))
