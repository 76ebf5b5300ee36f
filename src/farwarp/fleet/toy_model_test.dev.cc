// The kernels of the smallest model: vectors as packets, and streamed.
#include "farwarp/fleet/toy_model_test.dev.h"

namespace farwarp::FARWARP_TARGET::fleet::toy {

FARWARP_KERNEL(toy_static_2, Args, block_threads(2)) { run<Model<2>>(args, PacketDispatcher()); }
FARWARP_KERNEL(toy_static_16, Args, block_threads(16)) { run<Model<16>>(args, stream_dispatcher_of(args.launch)); }

}  // namespace farwarp::FARWARP_TARGET::fleet::toy
