// A submission in the process of its rank: what the process calls.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "farwarp/base/status.h"
#include "farwarp/runtime/device.h"
#include "farwarp/submission.h"

extern "C" {

/// A submission in Python: functions of python/farwarp/submission.py. Each returns 0, or another number: then
/// last_error() says why.
struct farwarp_submission_callbacks {
  int (*create)(const farwarp_submission_problem* problem);
  /// Not timed: makes tensors of what run() will be given.
  int (*prepare)(const farwarp_submission_tensor* inputs, std::int32_t input_count,
                 const farwarp_submission_tensor* outputs, std::int32_t output_count, void* stream);
  int (*run)();
  /// Not timed: copies what run() returned to the outputs, in the stream.
  int (*deliver)();
  void (*destroy)();
  const char* (*last_error)();
};

}  // extern "C"

namespace farwarp::judge {

struct CallArguments {
  std::vector<farwarp_submission_tensor> inputs, outputs;
  Stream stream;
};

class Loaded {
 public:
  virtual ~Loaded() = default;
  /// Loads it, and calls its create(). Errors name `path`.
  virtual Status create(const std::string& path, const farwarp_submission_problem& problem) = 0;
  /// Before and after run(), not timed.
  virtual Status prepare(const CallArguments& arguments) = 0;
  virtual Status run() = 0;
  virtual Status deliver() = 0;
  virtual void destroy() = 0;
  /// It may start programs (compilers) and wait for the device in run(): a file of Python.
  virtual bool is_python() const = 0;
};

std::unique_ptr<Loaded> shared_object();
std::unique_ptr<Loaded> python_file(const farwarp_submission_callbacks& callbacks);

}  // namespace farwarp::judge
