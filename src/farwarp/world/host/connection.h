// Frames over a non-blocking Unix stream socket: one at a time in each direction, each with at most one file
// descriptor.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "farwarp/world/host/unique_fd.h"

namespace farwarp {

struct Frame {
  std::uint32_t kind = 0;
  std::uint64_t sequence = 0;
  std::vector<std::byte> payload;
  UniqueFd fd;
};

class Connection {
 public:
  /// Larger payloads are refused: a foreign process must not make this one allocate all memory.
  static constexpr std::size_t kMaxPayload = std::size_t{1} << 30;

  enum class Progress : std::uint8_t {
    kWaiting,  ///< poll for events()
    kDone,
    kClosed,  ///< the peer is gone, or uses another protocol
  };

  Connection() = default;
  /// `socket` is non-blocking.
  explicit Connection(UniqueFd socket);

  int socket() const { return socket_.get(); }
  explicit operator bool() const { return static_cast<bool>(socket_); }
  /// The process at the other end; 0 if unknown. For messages only.
  pid_t peer_pid() const { return peer_pid_; }
  /// Whether the process at the other end has this process's user, as the kernel recorded it when that process
  /// connected or listened.
  bool same_user() const;
  /// "process 12 of user 1000"
  std::string describe_peer() const;

  /// The payload and the descriptor must stay valid until the frame is sent.
  void start_send(std::uint32_t kind, std::uint64_t sequence, const std::vector<std::byte>& payload, int fd = -1);
  void start_receive(std::size_t max_payload = kMaxPayload);
  bool sending() const { return sending_; }
  bool receiving() const { return receiving_; }
  /// False while a frame is partly sent: no other frame may start then.
  bool may_start_send() const { return !sending_ || sent_ == 0; }
  /// What to poll for; 0 if neither sending nor receiving.
  short events() const;

  Progress continue_send();
  Progress continue_receive();
  /// Sends a frame without payload at once if the peer has read everything sent before; else does nothing. Must not be
  /// called while another frame is being sent.
  void send_if_all_is_read(std::uint32_t kind);
  /// Bytes sent and received so far.
  std::uint64_t moved() const { return moved_; }
  /// The received frame, after kDone.
  Frame take();

 private:
  struct Header {
    std::uint64_t magic;
    std::uint32_t kind;
    std::uint32_t carries_fd;
    std::uint64_t sequence;
    std::uint64_t payload_bytes;
  };
  static constexpr std::uint64_t kMagic = 0x3230707261777266;  // "frwarp02": 02 is the version of the protocol

  Progress receive_header();

  UniqueFd socket_;
  pid_t peer_pid_ = 0;
  std::optional<uid_t> peer_uid_;
  std::uint64_t moved_ = 0;

  bool sending_ = false;
  Header out_header_{};
  const std::byte* out_payload_ = nullptr;
  int out_fd_ = -1;
  std::size_t sent_ = 0;  // of header and payload

  bool receiving_ = false;
  Header in_header_{};
  Frame in_;
  std::size_t received_ = 0;  // of header and payload
  std::size_t max_payload_ = 0;
  bool too_many_fds_ = false;
};

}  // namespace farwarp
