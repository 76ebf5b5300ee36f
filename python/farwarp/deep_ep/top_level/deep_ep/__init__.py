"""DeepEP's name for farwarp.deep_ep, for programs that import it unchanged.

This folder's parent is on PYTHONPATH only where that is wanted.
"""

from farwarp.deep_ep import *  # noqa: F403
from farwarp.deep_ep import __getattr__  # noqa: F401
