// CDNA has no bulk copies and no mbarriers, so these functions of device.h are not defined. Kernels test
// Target::kHasBulkCopy in an `if constexpr` of a template, so that no code refers to them.
#pragma once

#include "farwarp/substrate/device.h"
