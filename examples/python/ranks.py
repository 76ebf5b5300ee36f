"""Starts the ranks of an example: as emulated ranks, which are threads of this process, or as a process of torchrun."""

import argparse

import farwarp


def main(about, with_numpy, with_torch):
    """Calls with_numpy(world) on each emulated rank, or with --torch with_torch(world) on this process's GPU."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--torch", action="store_true", help="torch tensors on GPUs, under torchrun")
    parser.add_argument("--ranks", type=int, default=4, help="emulated ranks")
    parser.add_argument("--target", default="emu_sm90", choices=("emu_sm90", "emu_gfx942"))
    arguments = parser.parse_args()
    if not arguments.torch:
        farwarp.run(with_numpy, ranks=arguments.ranks, target=arguments.target)
        return
    import os

    import torch

    torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", 0)))
    torch.distributed.init_process_group("nccl")
    with farwarp.World(torch.distributed.group.WORLD, target="cuda") as world:
        with_torch(world)
    torch.distributed.destroy_process_group()
