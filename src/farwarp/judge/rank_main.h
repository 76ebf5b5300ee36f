// The process of one rank of a submission, from its beginning to its end.
#pragma once

#include "farwarp/judge/loaded.h"

namespace farwarp::judge {

/// `socket` leads to the judge. Returns the exit status.
int rank_main(int socket);

}  // namespace farwarp::judge

/// The same of libfarwarp.so, for farwarp/submission.py.
extern "C" int farwarp_submission_rank(int socket, const farwarp_submission_callbacks* callbacks);
