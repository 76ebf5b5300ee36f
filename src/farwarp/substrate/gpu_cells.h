// Accesses to cells on GPUs: the accesses of system scope. The emulator has its own, which know whose memory it is.
#pragma once

#include "farwarp/substrate/device.h"

namespace farwarp::FARWARP_TARGET {

template <Order order, class T>
FARWARP_DEVICE T load(Global<SystemCell<T>> cell) {
  return load<order, Scope::system>(Global<T>(&cell.raw->word));
}
template <Order order, class T>
FARWARP_DEVICE T load(Peer<SystemCell<T>> cell) {
  return load<order, Scope::system>(Global<T>(&cell.raw->word));
}
template <Order order, class T>
FARWARP_DEVICE void store(Global<SystemCell<T>> cell, std::type_identity_t<T> value) {
  store<order, Scope::system>(Global<T>(&cell.raw->word), value);
}
template <Order order, class T>
FARWARP_DEVICE void store(Peer<SystemCell<T>> cell, std::type_identity_t<T> value) {
  store<order, Scope::system>(Global<T>(&cell.raw->word), value);
}
template <Order order, class T>
FARWARP_DEVICE T fetch_add(Peer<SystemCell<T>> cell, std::type_identity_t<T> value) {
  return fetch_add<order, Scope::system>(Global<T>(&cell.raw->word), value);
}

}  // namespace farwarp::FARWARP_TARGET
