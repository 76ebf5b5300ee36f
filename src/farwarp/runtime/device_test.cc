// One suite for every target: the emulator's two personalities, HIP (in CTest against vendor/hip_stub), and CUDA if
// there is a driver.
#include "farwarp/runtime/device.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <thread>
#include <vector>

#include "farwarp/runtime/device_test.h"

namespace farwarp {
namespace {

constexpr std::uint64_t kSecond = 1'000'000'000;

class DeviceTest : public testing::TestWithParam<TargetKind> {
 protected:
  void SetUp() override {
    if (!Device::has_kernels(GetParam())) GTEST_SKIP() << "no kernels in this build";
    auto opened = Device::open(GetParam(), 0);
    if (!opened.ok() && opened.status().code() == StatusCode::kUnavailable) GTEST_SKIP() << opened.status().message();
    ASSERT_TRUE(opened.ok()) << opened.status().to_string();
    device_ = *opened;
    auto stream = device_->create_stream();
    ASSERT_TRUE(stream.ok()) << stream.status().to_string();
    stream_ = *stream;
  }

  void TearDown() override {
    for (void* pointer : allocated_) device_->release(pointer);
    if (stream_.handle != nullptr) device_->destroy_stream(stream_);
  }

  /// Device memory of `count` words, all of them `value`; released by TearDown.
  std::uint32_t* words(std::size_t count, std::uint32_t value) {
    auto pointer = device_->allocate(count * sizeof(std::uint32_t));
    EXPECT_TRUE(pointer.ok()) << pointer.status().to_string();
    if (!pointer.ok()) return nullptr;
    allocated_.push_back(*pointer);
    const std::vector<std::uint32_t> values(count, value);
    ok(device_->copy_in(*pointer, values.data(), count * sizeof(std::uint32_t), stream_));
    return static_cast<std::uint32_t*>(*pointer);
  }

  std::vector<std::uint32_t> read(Device& device, const std::uint32_t* pointer, std::size_t count, Stream stream) {
    std::vector<std::uint32_t> values(count, 0xdeadbeef);
    ok(device.copy_out(values.data(), pointer, count * sizeof(std::uint32_t), stream));
    return values;
  }
  std::vector<std::uint32_t> read(const std::uint32_t* pointer, std::size_t count) {
    return read(*device_, pointer, count, stream_);
  }

  Kernel kernel(std::string_view name) {
    auto found = device_->kernel(name);
    EXPECT_TRUE(found.ok()) << found.status().to_string();
    return found.ok() ? *found : Kernel{};
  }

  void add(std::uint32_t* pointer, std::uint32_t count, std::uint32_t amount) {
    const AddArgs args{Global<std::uint32_t>(pointer), count, amount};
    ok(launch(*device_, kernel("device_test_add"), {.blocks = 2, .threads = 64}, args, stream_));
  }

  static void ok(const Status& status) { EXPECT_TRUE(status.ok()) << status.to_string(); }
  static void fails(const Status& status, StatusCode code, const std::string& words) {
    EXPECT_EQ(status.code(), code) << status.to_string();
    EXPECT_NE(status.message().find(words), std::string::npos) << status.message();
  }

  std::shared_ptr<Device> device_;
  Stream stream_;
  std::vector<void*> allocated_;
};

TEST_P(DeviceTest, HasTheShapeOfItsTarget) {
  EXPECT_EQ(device_->target(), GetParam());
  EXPECT_EQ(device_->ordinal(), 0);
  EXPECT_EQ(device_->shape().traits.warp_size, traits_of(GetParam()).warp_size);
  EXPECT_GE(device_->shape().multiprocessors, 1);
  EXPECT_FALSE(device_->name().empty());
  EXPECT_FALSE(device_->sharing_path().empty());
}

TEST_P(DeviceTest, IsOpenedOnce) {
  auto again = Device::open(GetParam(), 0);
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(*again, device_);
}

TEST_P(DeviceTest, HandsOnWhatIsSaidWhileItIsCurrent) {
  ok(device_->while_current([] { return Status(); }));
  fails(device_->while_current([] { return invalid_argument("as said"); }), StatusCode::kInvalidArgument, "as said");
}

TEST_P(DeviceTest, RefusesAnOrdinalThatDoesNotExist) {
  const int count = Device::count(GetParam());
  EXPECT_GE(count, 1);
  fails(Device::open(GetParam(), count).status(), StatusCode::kInvalidArgument, "ordinal is " + std::to_string(count));
  fails(Device::open(GetParam(), -1).status(), StatusCode::kInvalidArgument, "ordinal is -1");
}

TEST_P(DeviceTest, WaitsForAllStreamsAtOnce) {
  ok(device_->synchronize_all(kSecond));  // with nothing enqueued
  std::uint32_t* pointer = words(100, 1);
  auto other = device_->create_stream();
  ASSERT_TRUE(other.ok());
  auto passed = device_->create_event(), start = device_->create_event();
  ASSERT_TRUE(passed.ok() && start.ok());
  ok(device_->record(**start, *other));
  ok(device_->enqueue_delay(*other, 20'000'000));
  ok(device_->record(**passed, *other));
  add(pointer, 100, 5);
  ok(device_->synchronize_all(60 * kSecond));
  EXPECT_TRUE(device_->microseconds_between(**start, **passed).ok()) << "the other stream has come to its end";
  EXPECT_EQ(read(pointer, 100), std::vector<std::uint32_t>(100, 6));
  device_->destroy_stream(*other);
}

TEST_P(DeviceTest, CopiesAndFillsInStreamOrder) {
  std::uint32_t* pointer = words(100, 1);
  ok(device_->fill(pointer + 10, 0x5a, 20 * sizeof(std::uint32_t), stream_));
  const std::uint32_t value = 7;
  ok(device_->copy_in(pointer + 20, &value, sizeof(value), stream_));
  const auto values = read(pointer, 100);
  for (std::size_t i = 0; i < values.size(); ++i) {
    EXPECT_EQ(values[i], i == 20 ? 7u : i >= 10 && i < 30 ? 0x5a5a5a5au : 1u) << i;
  }
}

TEST_P(DeviceTest, MayReuseTheBufferAfterCopyIn) {
  std::uint32_t* pointer = words(1 << 16, 0);
  std::vector<std::uint32_t> buffer(1 << 16, 3);
  ok(device_->enqueue_delay(stream_, kSecond / 50));
  ok(device_->copy_in(pointer, buffer.data(), buffer.size() * sizeof(buffer[0]), stream_));
  std::fill(buffer.begin(), buffer.end(), 4);
  EXPECT_EQ(read(pointer, buffer.size()), std::vector<std::uint32_t>(buffer.size(), 3));
}

TEST_P(DeviceTest, UsesTheDefaultStreamToo) {
  std::uint32_t* pointer = words(4, 1);
  ok(device_->synchronize(stream_, kSecond));
  ok(device_->fill(pointer, 0, 4 * sizeof(std::uint32_t), Stream{}));
  EXPECT_EQ(read(*device_, pointer, 4, Stream{}), std::vector<std::uint32_t>(4, 0));
}

TEST_P(DeviceTest, RunsKernelsInStreamOrder) {
  std::uint32_t* pointer = words(1000, 5);
  for (int i = 0; i < 10; ++i) add(pointer, 1000, 1);
  EXPECT_EQ(read(pointer, 1000), std::vector<std::uint32_t>(1000, 15));
}

TEST_P(DeviceTest, GivesBlocksTheirSharedMemory) {
  std::uint32_t* total = words(1, 0);
  const std::size_t most = static_cast<std::size_t>(device_->shape().traits.shared_bytes);
  const SumArgs args{Global<std::uint32_t>(total)};
  const Kernel sum = kernel("device_test_sum");
  ok(launch(*device_, sum, {.blocks = 2, .threads = 128, .shared_bytes = most}, args, stream_));
  EXPECT_EQ(read(total, 1)[0], 2u * (127 * 128 / 2));
}

TEST_P(DeviceTest, HostMemoryIsZeroedAndSharedWithKernels) {
  void* on_device = nullptr;
  auto host = device_->allocate_host(64, &on_device);
  ASSERT_TRUE(host.ok()) << host.status().to_string();
  const auto* host_words = static_cast<const std::uint32_t*>(*host);
  for (int i = 0; i < 16; ++i) EXPECT_EQ(host_words[i], 0u) << i;
  add(static_cast<std::uint32_t*>(on_device), 16, 9);
  ok(device_->synchronize(stream_, kSecond));
  for (int i = 0; i < 16; ++i) EXPECT_EQ(host_words[i], 9u) << i;
  device_->release_host(*host);
}

TEST_P(DeviceTest, RefusesLaunchesThatCannotRun) {
  std::uint32_t* pointer = words(1, 0);
  const Kernel add = kernel("device_test_add");
  EXPECT_EQ(add.args_bytes, sizeof(AddArgs));
  const AddArgs args{Global<std::uint32_t>(pointer), 1, 1};
  const auto code = StatusCode::kInvalidArgument;
  fails(device_->launch(add, {.threads = 64}, &args, sizeof(args) - 4, stream_), code, "args_bytes is 12");
  fails(launch(*device_, add, {.threads = 0}, args, stream_), code, "threads is 0, allowed are 1 to 128");
  fails(launch(*device_, add, {.threads = 129}, args, stream_), code, "threads is 129, allowed are 1 to 128");
  fails(launch(*device_, add, {.blocks = 0}, args, stream_), code, "blocks is 0");
  fails(launch(*device_, add, {.shared_bytes = 1 << 20}, args, stream_), code, "shared_bytes is 1048576");
  fails(launch(*device_, Kernel{}, {}, args, stream_), code, "kernel is empty");
  fails(device_->kernel("no_such_kernel").status(), StatusCode::kUnavailable, "no_such_kernel");
  EXPECT_EQ(read(pointer, 1)[0], 0u);
}

TEST_P(DeviceTest, RefusesGridsThatCannotBeResident) {
  std::uint32_t* total = words(1, 0);
  const Kernel sum = kernel("device_test_sum");
  const SumArgs args{Global<std::uint32_t>(total)};
  const std::size_t more_than_half = static_cast<std::size_t>(device_->shape().traits.shared_bytes) * 3 / 4;
  auto resident = device_->blocks_per_multiprocessor(sum, 128, more_than_half);
  ASSERT_TRUE(resident.ok()) << resident.status().to_string();
  EXPECT_EQ(*resident, 1);
  const int most = device_->shape().multiprocessors;
  ok(launch(*device_, sum, {.blocks = most, .threads = 128, .shared_bytes = more_than_half}, args, stream_));
  fails(launch(*device_, sum, {.blocks = most + 1, .threads = 128, .shared_bytes = more_than_half}, args, stream_),
        StatusCode::kInvalidArgument, "blocks is " + std::to_string(most + 1));
  EXPECT_EQ(read(total, 1)[0], static_cast<std::uint32_t>(most) * (127 * 128 / 2));
}

TEST_P(DeviceTest, ReplaysGraphs) {
  std::uint32_t* pointer = words(8, 100);
  ok(device_->synchronize(stream_, kSecond));
  ok(device_->begin_capture(stream_));
  ok(device_->fill(pointer, 0, 4 * sizeof(std::uint32_t), stream_));
  add(pointer, 8, 1);
  add(pointer, 8, 1);
  auto graph = device_->end_capture(stream_);
  ASSERT_TRUE(graph.ok()) << graph.status().to_string();
  EXPECT_EQ(read(pointer, 8), std::vector<std::uint32_t>(8, 100)) << "capturing must not run anything";
  for (int replay = 0; replay < 3; ++replay) ok(device_->launch(**graph, stream_));
  const auto values = read(pointer, 8);
  for (int i = 0; i < 8; ++i) EXPECT_EQ(values[i], i < 4 ? 2u : 106u) << i;
}

TEST_P(DeviceTest, DoesNotCaptureCopiesOrTheDefaultStream) {
  std::uint32_t* pointer = words(1, 1);
  ok(device_->synchronize(stream_, kSecond));
  fails(device_->begin_capture(Stream{}), StatusCode::kInvalidArgument, "default stream");
  std::uint32_t value = 2;
  auto event = device_->create_event();
  ASSERT_TRUE(event.ok());
  ok(device_->begin_capture(stream_));
  fails(device_->copy_in(pointer, &value, sizeof(value), stream_), StatusCode::kMisuse, "copy_in");
  fails(device_->copy_out(&value, pointer, sizeof(value), stream_), StatusCode::kMisuse, "copy_out");
  fails(device_->record(**event, stream_), StatusCode::kMisuse, "record");
  EXPECT_TRUE(device_->end_capture(stream_).ok()) << "a refused call must not spoil the capture";
  EXPECT_EQ(read(pointer, 1)[0], 1u);
}

TEST_P(DeviceTest, EventsMeasureWhatLiesBetweenThem) {
  auto start = device_->create_event();
  auto end = device_->create_event();
  ASSERT_TRUE(start.ok() && end.ok());
  fails(device_->microseconds_between(**start, **end).status(), StatusCode::kMisuse, "event");
  ok(device_->record(**start, stream_));
  ok(device_->enqueue_delay(stream_, kSecond / 50));
  ok(device_->record(**end, stream_));
  ok(device_->synchronize(stream_, 10 * kSecond));
  auto microseconds = device_->microseconds_between(**start, **end);
  ASSERT_TRUE(microseconds.ok()) << microseconds.status().to_string();
  const bool stub = GetParam() == TargetKind::kHip && std::getenv("FARWARP_HIP_LIBRARY") != nullptr;
  EXPECT_GE(*microseconds, stub ? 0 : 0.9 * 20'000)
      << "the stub delays the host, and its clock stands while no kernel runs";
  EXPECT_LE(*microseconds, 20 * 20'000);
}

TEST_P(DeviceTest, SharesMemoryWithinTheProcess) {
  MemoryHandle handle;
  auto owned = device_->allocate_shareable(100'000, &handle);
  ASSERT_TRUE(owned.ok()) << owned.status().to_string();
  EXPECT_NE(handle.kind, MemoryHandle::Kind::kNone);
  EXPECT_GE(handle.bytes, 100'000u);
  EXPECT_EQ(handle.address, *owned);
  ok(device_->fill(*owned, 0, handle.bytes, stream_));
  ok(device_->synchronize(stream_, kSecond));

  // The other device writes; if there is only one device, it is both.
  const int other = Device::count(GetParam()) > 1 ? 1 : 0;
  auto opened = Device::open(GetParam(), other);
  ASSERT_TRUE(opened.ok()) << opened.status().to_string();
  Device& peer = **opened;
  auto imported = peer.import(handle, 0);
  ASSERT_TRUE(imported.ok()) << imported.status().to_string();
  auto put = peer.kernel("device_test_put");
  auto stream = peer.create_stream();
  ASSERT_TRUE(put.ok() && stream.ok());
  const PutArgs args{Peer<std::uint32_t>(static_cast<std::uint32_t*>(*imported) + 20'000), 77};
  ok(launch(peer, *put, {.threads = 64}, args, *stream));
  ok(peer.synchronize(*stream, 10 * kSecond));
  EXPECT_EQ(read(static_cast<std::uint32_t*>(*owned) + 19'999, 3), (std::vector<std::uint32_t>{0, 77, 0}));
  peer.destroy_stream(*stream);
  peer.release_import(*imported, handle);
  device_->release_shareable(*owned, handle);
}

TEST_P(DeviceTest, RefusesAnEmptyHandle) {
  fails(device_->import(MemoryHandle{}, 0).status(), StatusCode::kInvalidArgument, "handle");
}

TEST_P(DeviceTest, ServesSeveralHostThreads) {
  constexpr int kThreads = 4;
  std::vector<std::uint32_t*> pointers;
  for (int i = 0; i < kThreads; ++i) pointers.push_back(words(256, 0));
  ok(device_->synchronize(stream_, kSecond));
  std::atomic<int> failures = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      auto stream = device_->create_stream();
      auto add = device_->kernel("device_test_add");
      if (!stream.ok() || !add.ok()) {
        ++failures;
        return;
      }
      const AddArgs args{Global<std::uint32_t>(pointers[i]), 256, static_cast<std::uint32_t>(i)};
      for (int call = 0; call < 20; ++call) failures += !launch(*device_, *add, {.threads = 64}, args, *stream).ok();
      failures += !device_->synchronize(*stream, 10 * kSecond).ok();
      device_->destroy_stream(*stream);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failures, 0);
  for (int i = 0; i < kThreads; ++i) EXPECT_EQ(read(pointers[i], 256), std::vector<std::uint32_t>(256, 20u * i)) << i;
}

TEST_P(DeviceTest, ListsItsKernels) {
  const std::vector<std::string> names = Device::kernel_names(GetParam());
  EXPECT_TRUE(std::is_sorted(names.begin(), names.end()));
  for (const char* name : {"device_test_add", "device_test_put", "device_test_sum"}) {
    EXPECT_EQ(std::count(names.begin(), names.end(), name), 1) << name;
  }
}

TEST(DeviceKernels, AreThereIfTheyHaveNames) {
  for (const TargetKind target : {TargetKind::kCuda, TargetKind::kHip, TargetKind::kEmuSm90, TargetKind::kEmuGfx942}) {
    EXPECT_EQ(Device::has_kernels(target), !Device::kernel_names(target).empty()) << name_of(target);
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, DeviceTest,
                         testing::Values(TargetKind::kEmuSm90, TargetKind::kEmuGfx942, TargetKind::kHip,
                                         TargetKind::kCuda),
                         [](const auto& target) { return std::string(name_of(target.param)); });

class EmuDeviceTest : public testing::Test {
 protected:
  void TearDown() override {
    unsetenv("FARWARP_EMU_MULTIPROCESSORS");
    unsetenv("FARWARP_EMU_XCDS");
  }
};

TEST_F(EmuDeviceTest, TakesItsSizeFromTheEnvironment) {
  setenv("FARWARP_EMU_MULTIPROCESSORS", "3", 1);
  auto device = Device::open(TargetKind::kEmuSm90, 7);
  ASSERT_TRUE(device.ok()) << device.status().to_string();
  EXPECT_EQ((*device)->shape().multiprocessors, 3);
  EXPECT_EQ((*device)->name(), "emulated sm90 (3 multiprocessors)");
}

TEST_F(EmuDeviceTest, TakesItsXcdsFromTheEnvironment) {
  const auto xcds = [](TargetKind target) {
    const auto device = Device::open(target, 7);
    return device.ok() ? (*device)->shape().xcds : -1;
  };
  EXPECT_EQ(xcds(TargetKind::kEmuGfx942), 8);
  setenv("FARWARP_EMU_XCDS", "2", 1);
  EXPECT_EQ(xcds(TargetKind::kEmuGfx942), 2);
  EXPECT_EQ(xcds(TargetKind::kEmuSm90), 1);
  setenv("FARWARP_EMU_XCDS", "17", 1);
  EXPECT_EQ(Device::open(TargetKind::kEmuGfx942, 7).status().message(),
            "FARWARP_EMU_XCDS is '17', allowed are 1 to 16");
}

TEST_F(EmuDeviceTest, RefusesSizesThatAreNone) {
  for (const char* text : {"0", "-1", "eight", "8x", "100000"}) {
    setenv("FARWARP_EMU_MULTIPROCESSORS", text, 1);
    const Status status = Device::open(TargetKind::kEmuGfx942, 7).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << text;
    EXPECT_NE(status.message().find("FARWARP_EMU_MULTIPROCESSORS is '" + std::string(text) + "'"), std::string::npos);
  }
}

}  // namespace
}  // namespace farwarp
