"""What the scripts *_pytorch.py beside this file share: how PyTorch's calls are timed on GPUs, how ranks are started.

Scripts import it as `pytorch_timing`: Python looks for modules in a script's own folder. PyTorch is passed in, because
a script first says what is wrong with its arguments.
"""

import os
import pathlib
import socket
import statistics
import sys

FLUSH_BYTES = 256 << 20  # more than an L2
WARM_UP = 3  # samples that do not count


def fail(message: str, code: int = 2) -> None:
    print(f"{pathlib.Path(sys.argv[0]).name}: {message}", file=sys.stderr)
    sys.exit(code)


class Flush:
    """Memory that empties the L2: write() displaces what it holds, read() writes back what write() left dirty."""

    def __init__(self, torch):
        self.memory = torch.empty(FLUSH_BYTES, dtype=torch.uint8, device="cuda")
        self.whole_words = self.memory.view(torch.int64)

    def write(self, sample: int) -> None:
        self.memory.fill_(sample % 251)

    def read(self) -> None:
        self.whole_words.max()


def capture(torch, calls: list) -> list:
    """A CUDA graph of each call, which is made before on a stream of its own, as capturing asks for."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for call in calls:
            for _ in range(3):
                call()
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    graphs = []
    for call in calls:
        graphs.append(torch.cuda.CUDAGraph())
        with torch.cuda.graph(graphs[-1]):
            call()
    return graphs


def median_us(torch, graphs: list, ranks: int, samples: int, hold_cycles: int, before=None) -> float:
    """Collective: the median of samples, each of the slowest rank.

    A sample is a replay of one of the graphs, in turn, between two events. before(i) enqueues what comes before sample
    i. A delay of hold_cycles holds the stream meanwhile, so no gap of the host counts.
    """
    times, ready = [], torch.zeros(1, device="cuda")
    for i in range(WARM_UP + samples):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        if ranks > 1:
            torch.distributed.barrier()
        torch.cuda._sleep(hold_cycles)
        if before is not None:
            before(i)
        if ranks > 1:
            torch.distributed.all_reduce(ready)  # the ranks begin together
        start.record()
        graphs[i % len(graphs)].replay()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) * 1e3)
    slowest = torch.tensor(times[WARM_UP:], device="cuda")
    if ranks > 1:
        torch.distributed.all_reduce(slowest, op=torch.distributed.ReduceOp.MAX)
    return statistics.median(slowest.tolist())


def spawn(torch, function, ranks: int, *arguments) -> None:
    """function(rank, *arguments) in a process for each rank, which find each other through the environment.

    Ends this process with the exit status of a rank that fails.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1])}
    os.environ["NCCL_NVLS_ENABLE"] = "0"  # as in `farwarp bench`
    try:
        torch.multiprocessing.spawn(function, arguments, ranks)
    except torch.multiprocessing.ProcessExitedException as error:  # the rank has said why
        sys.exit(error.exit_code)
    except torch.multiprocessing.ProcessRaisedException as error:
        fail(str(error), 1)
