"""Ranks that are processes with a gloo process group."""

import subprocess
import sys
import tempfile
import textwrap

_BEGIN = """
import sys, torch, torch.distributed as dist, farwarp
rank, ranks = int(sys.argv[1]), int(sys.argv[3])
dist.init_process_group("gloo", init_method=f"file://{sys.argv[2]}", rank=rank, world_size=ranks)
"""
_END = """
dist.destroy_process_group()
"""


def outputs(program, ranks):
    """What each rank's `program` prints, which has torch, dist, farwarp, rank and ranks. An error on one fails."""
    program = _BEGIN + textwrap.dedent(program) + _END
    with tempfile.TemporaryDirectory() as folder:
        started = [
            subprocess.Popen(
                [sys.executable, "-c", program, str(rank), folder + "/store", str(ranks)],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for rank in range(ranks)
        ]
        ended = [process.communicate(timeout=500) for process in started]
    assert all(process.returncode == 0 for process in started), "\n".join(error for _, error in ended)
    return [output for output, _ in ended]
