"""What a process holds: memory of the host, file descriptors, mappings of shared memory."""

import os
import resource
import threading

import farwarp

_alone = threading.Lock()  # ranks are threads, and counting opens files

SHAPES = 8, 16, 64  # m, n, k of the products
KINDS = 9  # classes of operators


def held():
    """Bytes of host memory, open files, mappings of shared memory."""
    with _alone:
        with open("/proc/self/statm", encoding="ascii") as file:
            resident = int(file.read().split()[1]) * resource.getpagesize()
        with open("/proc/self/maps", encoding="ascii") as file:
            shared = sum("memfd:" in line for line in file)
        return resident, len(os.listdir("/proc/self/fd")), shared


def open_one(world, number):
    """An operator, each time of the next class. Collective."""
    m, n, k = (size * world.size for size in SHAPES)
    kinds = (
        lambda: farwarp.Gemm(world, m, n, k),
        lambda: farwarp.AllGatherGemm(world, m, n, k, path="own"),
        lambda: farwarp.GemmReduceScatter(world, m, n, k, path="own"),
        lambda: farwarp.GemmAllReduce(world, m, n, k, path="own"),
        lambda: farwarp.AllReduce(world, 1024),
        lambda: farwarp.MoeAllToAll(world, 8, 2, 64, 4),
        lambda: farwarp.MoeRowsAllToAll(world, 8, 2, 64, 4),
        lambda: farwarp.Attention(world, 1, 2, 1, 64, 8, 8),
        lambda: farwarp.FlashDecode(world, 2, 2, 1, 64, pages=4, max_pages=2, kv_shards=world.size),
    )
    assert len(kinds) == KINDS
    return kinds[number % KINDS]()


def cycles(world, count):
    """Operators are created and closed, and every 50th time one is called. Collective."""
    for number in range(count):
        with open_one(world, number):
            if number % 50 == 0:
                with farwarp.AllReduce(world, 8) as sums:
                    sums(world.zeros((8,), "bfloat16")).numpy()
    assert not world.operators
    world.synchronize()
    assert not world.memory
