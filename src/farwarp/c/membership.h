// A rank of a group, which it can leave before its World is destroyed.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "farwarp/world/host/bootstrap.h"

namespace farwarp::c {

class Membership final : public Bootstrap {
 public:
  explicit Membership(std::shared_ptr<Bootstrap> group)
      : rank_(group->rank()), size_(group->size()), same_process_(group->same_process()), group_(std::move(group)) {}

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  bool same_process() const override { return same_process_; }

  Result<std::vector<std::vector<std::byte>>> allgather(const std::vector<std::byte>& mine,
                                                        std::chrono::milliseconds timeout) override {
    if (group_ == nullptr) return has_left();
    return group_->allgather(mine, timeout);
  }
  Result<std::vector<int>> allgather_fds(int mine, std::chrono::milliseconds timeout) override {
    if (group_ == nullptr) return has_left();
    return group_->allgather_fds(mine, timeout);
  }
  void set_longest_silence(std::chrono::milliseconds longest) override {
    if (group_ != nullptr) group_->set_longest_silence(longest);
  }

  /// The other ranks' collective calls fail from now on, and this rank's own.
  void leave() { group_.reset(); }

 private:
  static Status has_left() { return {StatusCode::kPeerLost, "this rank has left its group"}; }

  int rank_, size_;
  bool same_process_;
  std::shared_ptr<Bootstrap> group_;
};

}  // namespace farwarp::c
