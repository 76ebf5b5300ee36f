// The kernels of the smallest model with the gang dispatcher: plain vectors, fetched whole and streamed.
#include "farwarp/fleet/gang.dev.h"
#include "farwarp/fleet/toy_model_test.dev.h"

namespace farwarp::FARWARP_TARGET::fleet::toy {

FARWARP_KERNEL(toy_gang_2, Args, block_threads(2)) { run<Model<2>>(args, gang_of(args.launch)); }
FARWARP_KERNEL(toy_gang_16, Args, block_threads(16)) { run<Model<16>>(args, gang_of(args.launch)); }

}  // namespace farwarp::FARWARP_TARGET::fleet::toy
