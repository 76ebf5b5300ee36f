"""What all operators of the MoE all-to-all share."""

from __future__ import annotations

from typing import Literal

from . import _c
from .errors import check
from .operator import Operator

Mode = Literal["auto", "words", "bulk"]
MODES = ("auto", "words", "bulk")  # in the order of farwarp_moe_mode


class MoeOperator(Operator):
    """An operator whose functions of c.h are farwarp_moe_..."""

    _c_prefix = "moe"

    def recovered(self) -> None:
        """After World.recover(): a call of which not all halves were made is over."""
        check(_c.lib.moe_forget(self.open_handle()))
