"""How the scripts of this folder that call farwarp's operators from Python time them on GPUs.

They do it as src/farwarp/harness/timing.h does, so that times can be compared with those of `farwarp bench`. Imported
by name: Python looks for modules in a script's own folder.
"""

import statistics
import time

import torch

import farwarp
import pytorch_timing

HOLD_CYCLES = 8_000_000
HOLD_S = 3e-3  # what they last at least
TRAFFIC, TRAFFIC_CALLS = 1 << 16, 40  # elements: few, so that little in the L2 is dirty when the first call begins


class HeldStream:
    """Of one rank, on its current stream. meet(): a barrier of the ranks' hosts."""

    def __init__(self, world, meet):
        self.world, self.meet = world, meet
        self.flush = pytorch_timing.Flush(torch)
        self.aligned, self.traffic = farwarp.AllReduce(world, 8), farwarp.AllReduce(world, TRAFFIC)
        self.few, self.many = (torch.ones(elements, dtype=torch.bfloat16, device="cuda") for elements in (8, TRAFFIC))

    def close(self):
        self.aligned.close()
        self.traffic.close()

    def sample(self, number, calls):
        """Collective: us of each call. None: the host was late, so a gap may be its own.

        The stream is held while the host enqueues; before the first call the L2 is flushed, the links have traffic, and
        the ranks meet.
        """
        events = [torch.cuda.Event(enable_timing=True) for _ in range(len(calls) + 1)]
        torch.cuda.synchronize()
        self.meet()
        began = time.perf_counter()
        torch.cuda._sleep(HOLD_CYCLES)
        self.flush.write(number)
        self.flush.read()
        if self.world.size > 1:
            for _ in range(TRAFFIC_CALLS):
                self.traffic(self.many, out=self.many)
        self.aligned(self.few, out=self.few)
        events[0].record()
        for call, event in zip(calls, events[1:]):
            call()
            event.record()
        late = time.perf_counter() - began > HOLD_S
        events[-1].synchronize()
        self.many.zero_()
        self.few.zero_()
        return None if late else [1e3 * first.elapsed_time(second) for first, second in zip(events, events[1:])]


def slowest(ranks):
    """Of each time, the median of the slowest rank's.

    ranks: of each rank, of each sample, a list of times, or None if the host was late.
    """
    kept = [sample for sample in zip(*ranks) if None not in sample]
    if 2 * len(kept) < len(ranks[0]):
        raise RuntimeError(
            f"the host was late for {len(ranks[0]) - len(kept)} of {len(ranks[0])} samples; allowed: half"
        )
    worst = [[max(times) for times in zip(*sample)] for sample in kept]
    return [statistics.median(column) for column in zip(*worst)]
