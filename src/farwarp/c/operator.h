// A handle of an operator of c.h.
#pragma once

#include <memory>

#include "farwarp/c/support.h"

namespace farwarp::c {

template <class Op, class Desc>
struct Operator {
  World& world;
  Op op;
  Desc desc;
};

/// Collective. read() gives the operator's descriptor, make(world, descriptor) the operator. If this rank's descriptor
/// is wrong, all ranks fail, and none waits.
template <class Handle, class Read, class Make>
farwarp_code create(farwarp_world* world, Handle** handle, const Read& read, const Make& make) {
  return guarded([&]() -> Status {
    if (world == nullptr || handle == nullptr) return null_argument(world == nullptr ? "world" : "the handle");
    *handle = nullptr;
    const auto desc = read();
    if (Status agreed = world->world.agree("create", 0, desc.status()); !agreed.ok()) return agreed;
    auto op = make(world->world, *desc);
    if (op.ok()) *handle = new Handle{{world->world, std::move(*op), *desc}};
    return op.status();
  });
}

/// Collective.
template <class Handle>
farwarp_code close(Handle* handle, const char* name) {
  return guarded([&]() -> Status {
    if (handle == nullptr) return null_argument(name);
    const std::unique_ptr<Handle> freed(handle);
    return freed->op.close();
  });
}

}  // namespace farwarp::c
