// The process of one rank of a submission, from its beginning to its end.
#pragma once

namespace farwarp::judge {

/// `socket` leads to the judge. Returns the exit status.
int rank_main(int socket);

}  // namespace farwarp::judge
