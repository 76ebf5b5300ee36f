"""Prints the folder for PYTHONPATH.

PYTHONPATH=$(python -m farwarp.deep_ep) python program.py
"""

from . import top_level

print(top_level())
