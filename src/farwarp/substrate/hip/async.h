// CDNA has no bulk copies and no mbarriers: what device.h declares of them stays undefined. Kernels ask
// Target::kHasBulkCopy in an `if constexpr` of a template, so that nothing refers to them.
#pragma once

#include "farwarp/substrate/device.h"
