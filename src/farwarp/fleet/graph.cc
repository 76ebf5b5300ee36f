#include "farwarp/fleet/graph.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "farwarp/base/arguments.h"

namespace farwarp::fleet {
namespace {

/// The steps of two tokens, one after the other, and who has written what each of them reads.
class Unrolled {
 public:
  explicit Unrolled(const Graph& graph) : graph_(graph), count_(static_cast<int>(graph.steps.size())) {}

  int size() const { return 2 * count_; }
  const Step& step(int index) const { return graph_.steps[static_cast<std::size_t>(index % count_)]; }
  bool writes(int index, int buffer) const {
    const std::vector<int>& written = step(index).writes;
    return std::find(written.begin(), written.end(), buffer) != written.end();
  }
  bool reads(int index, int buffer) const {
    const auto& all = step(index).reads;
    return std::any_of(all.begin(), all.end(), [&](const Step::Read& read) { return read.buffer == buffer; });
  }
  /// The last step before `index` that writes `buffer`; -1: none.
  int writer_before(int index, int buffer) const {
    for (int earlier = index - 1; earlier >= 0; --earlier) {
      if (writes(earlier, buffer)) return earlier;
    }
    return -1;
  }
  /// Adds the steps all of whose tasks have ended when any task of step `index` (`all`: when all its tasks) can begin.
  void add_ended(int index, bool all, std::set<int>& ended) const {
    for (const Step::Read& read : step(index).reads) {
      const int writer = writer_before(index, read.buffer);
      if (writer < 0) continue;
      if (!read.whole && !all) {
        add_ended(writer, false, ended);
      } else if (ended.insert(writer).second) {
        add_ended(writer, true,
                  ended);  // each of its tasks has ended, so all that its tasks have read has been written
      }
    }
  }
  /// The first step after `index` that reads `buffer`; -1: none before it is written again.
  int reader_after(int index, int buffer) const {
    for (int later = index + 1; later < size(); ++later) {
      if (reads(later, buffer)) return later;
      if (writes(later, buffer)) break;
    }
    return -1;
  }
  /// How many tags a step's token and layer are after those of the first one.
  int tag(int index) const { return index / count_ * graph_.tags_of_token() + step(index).layer; }
  /// The tag of what step `index` writes to `buffer`: that of the step which reads it.
  int written_tag(int index, int buffer) const {
    const int reader = reader_after(index, buffer);
    if (reader < 0 && index >= count_)  // its reader may be in the token after these two
      return written_tag(index - count_, buffer) + graph_.tags_of_token();
    return tag(reader < 0 ? index : reader);
  }
  /// Whether all ranks have added the sums that were in the buffer before when step `index` sends: another step that
  /// adds sums of the same tiles has ended in between. To end, a worker needs each rank's sums, which the peer's worker
  /// with the same tiles sends after it has added those before.
  bool rank_sums_collected(int index) const {
    std::set<int> ended;
    add_ended(index, false, ended);
    bool other = false;
    for (int earlier = index - 1; earlier >= 0; --earlier) {
      const Step& before = step(earlier);
      if (before.rank_sums == step(index).rank_sums) return other;
      other = other ||
              (before.rank_sums >= 0 && before.matrix.tiles == step(index).matrix.tiles && ended.contains(earlier));
    }
    return true;
  }

 private:
  const Graph& graph_;
  int count_;
};

/// "768 tiles, 6 for a worker at most, 100.7 MB".
std::string tasks_of(const Step& step, int workers) {
  const bool tiles = step.matrix.tiles > 0;
  const int all = tiles ? step.matrix.tiles : step.units;
  const std::string weights =
      step.matrix.bytes() > 0 ? fmt::format(", {:.1f} MB", static_cast<double>(step.matrix.bytes()) * 1e-6) : "";
  return fmt::format("{} {}, {} for a worker at most{}", all, tiles ? "tiles" : "units",
                     share_of(all, workers, 0).count, weights);
}

}  // namespace

int Graph::add_buffer(std::string name, Storage storage, std::int64_t fours) {
  const bool packets = is_packets(storage);
  std::int64_t& end = packets ? packet_bytes : plain_bytes;
  buffers.push_back({std::move(name), storage, fours, end});
  end += (fours * (packets ? 16 : 8) + 127) / 128 * 128;
  return static_cast<int>(buffers.size()) - 1;
}

Graph Graph::with_plain_buffers() const {
  Graph plain;
  for (const Buffer& buffer : buffers)
    plain.add_buffer(buffer.name, buffer.storage == Storage::kPackets ? Storage::kPlain : buffer.storage, buffer.fours);
  plain.steps = steps;
  plain.first_inputs = first_inputs;
  return plain;
}

int Graph::tags_of_token() const {
  int most = 0;
  for (const Step& step : steps) most = std::max(most, step.layer);
  return most + 1;
}

namespace {

/// What a step does with a buffer that another step has written before.
Status check_write(const Graph& graph, const Unrolled& unrolled, int index, int buffer) {
  const Step& step = unrolled.step(index);
  const Buffer& written = graph.buffers[static_cast<std::size_t>(buffer)];
  if (written.storage == Storage::kOwn || written.storage == Storage::kCopies) return {};  // a worker's own order
  for (const Step::Read& read : step.reads) {
    if (read.buffer == buffer)
      return invalid_argument(fmt::format("step {} writes {}, which its own tasks read", step.name, written.name));
  }
  const int before = unrolled.writer_before(index, buffer);
  if (before < 0) return {};
  std::set<int> ended;
  unrolled.add_ended(index, false, ended);
  int first = -1;
  for (int reader = before + 1; reader < index; ++reader) {
    if (!unrolled.reads(reader, buffer)) continue;
    if (first < 0) first = reader;
    if (!ended.contains(reader))
      return invalid_argument(
          fmt::format("step {} writes {} again, while step {} may still read what step {} has written", step.name,
                      written.name, unrolled.step(reader).name, unrolled.step(before).name));
    if (unrolled.tag(reader) != unrolled.tag(first))
      return invalid_argument(fmt::format("step {} reads {} in another layer than step {}", unrolled.step(reader).name,
                                          written.name, unrolled.step(first).name));
  }
  if (first < 0)
    return invalid_argument(
        fmt::format("step {} writes {}, which no step reads", unrolled.step(before).name, written.name));
  if (is_packets(written.storage) && unrolled.written_tag(before, buffer) == unrolled.written_tag(index, buffer))
    return invalid_argument(
        fmt::format("step {} writes {} again with the tag of step {}: a reader could take packets of either; allowed "
                    "is another buffer",
                    step.name, written.name, unrolled.step(before).name));
  return {};
}

/// Own memory is the same worker's in all steps that use it.
Status check_shares(const Graph& graph, const Unrolled& unrolled) {
  for (int buffer = 0; buffer < static_cast<int>(graph.buffers.size()); ++buffer) {
    if (graph.buffers[static_cast<std::size_t>(buffer)].storage != Storage::kOwn) continue;
    const Step* first = nullptr;
    for (int index = 0; index < unrolled.size() / 2; ++index) {
      if (!unrolled.reads(index, buffer) && !unrolled.writes(index, buffer)) continue;
      const Step& step = unrolled.step(index);
      if (first == nullptr) first = &step;
      if (step.matrix.tiles != first->matrix.tiles || step.units != first->units)
        return invalid_argument(
            fmt::format("steps {} and {} use {}, but share their work in different ways: a worker would read what "
                        "another one has written",
                        first->name, step.name, graph.buffers[static_cast<std::size_t>(buffer)].name));
    }
  }
  return {};
}

}  // namespace

Status Graph::check() const {
  const Unrolled unrolled(*this);
  const auto name = [&](int buffer) { return buffers[static_cast<std::size_t>(buffer)].name; };
  for (int index = 0; index < unrolled.size(); ++index) {
    const Step& step = unrolled.step(index);
    for (const Step::Read& read : step.reads) {
      const bool given = std::find(first_inputs.begin(), first_inputs.end(), read.buffer) != first_inputs.end();
      if (unrolled.writer_before(index, read.buffer) < 0 && !given)
        return invalid_argument(
            fmt::format("step {} reads {}, which no step before it writes", step.name, name(read.buffer)));
    }
    const int reader = step.writes.empty() ? -1 : unrolled.reader_after(index, step.writes[0]);
    const bool tags_ahead = step.epilogue == Epilogue::kHidden && step.matrix.slices > 0;
    if (reader >= 0 && reader < unrolled.size() / 2 && !tags_ahead &&
        buffers[static_cast<std::size_t>(step.writes[0])].storage != Storage::kCopies &&
        unrolled.tag(reader) != unrolled.tag(index))
      return invalid_argument(
          fmt::format("step {} writes {} for another layer, that of step {}; allowed for a product "
                      "that is added to the hidden vector",
                      step.name, name(step.writes[0]), unrolled.step(reader).name));
    for (const int buffer : step.writes) {
      if (Status status = check_write(*this, unrolled, index, buffer); !status.ok()) return status;
    }
    if (step.rank_sums >= 0 && (step.epilogue != Epilogue::kHidden || step.matrix.slices == 0))
      return invalid_argument(
          fmt::format("step {} sends partial sums to {}; allowed for a product that is added to the "
                      "hidden vector",
                      step.name, name(step.rank_sums)));
    if (step.rank_sums >= 0 && !unrolled.rank_sums_collected(index))
      return invalid_argument(fmt::format("step {} sends partial sums to {}, while a rank may still add those before",
                                          step.name, name(step.rank_sums)));
  }
  return check_shares(*this, unrolled);
}

Status Graph::check_launch(int columns, bool bulk_copy) const {
  const bool streamed = streams(columns);
  for (const Buffer& buffer : buffers) {
    if (buffer.storage == (streamed ? Storage::kPackets : Storage::kPlain))
      return invalid_argument(fmt::format("buffer {} has vectors as {}; allowed with {} columns: {}", buffer.name,
                                          streamed ? "packets" : "plain memory", columns,
                                          streamed ? "plain memory" : "packets"));
  }
  const int group_tiles = streamed ? kGroupTiles : 0, most_slices = most_pass_slices(columns, bulk_copy);
  for (const Step& step : steps) {
    if (step.matrix.slices == 0) continue;
    if (step.matrix.group_tiles != group_tiles)
      return invalid_argument(fmt::format("step {} has group_tiles of {}; allowed with {} columns: {}", step.name,
                                          step.matrix.group_tiles, columns, group_tiles));
    if (step.matrix.most_slices < 1 || step.matrix.most_slices > most_slices)
      return invalid_argument(fmt::format("step {} has most_slices of {}; allowed with {} columns: 1 to {}", step.name,
                                          step.matrix.most_slices, columns, most_slices));
  }
  if (steps.empty()) return {};
  const Step& last = steps.back();
  if (last.matrix.slices > 0)
    return invalid_argument(
        fmt::format("step {} is the last one and has weights; allowed for a step that all workers run", last.name));
  for (const int written : last.writes) {
    const Buffer& buffer = buffers[static_cast<std::size_t>(written)];
    if (buffer.storage != Storage::kCopies)
      return invalid_argument(
          fmt::format("step {} is the last one and writes {}; allowed are copies, because only one worker may run it",
                      last.name, buffer.name));
  }
  return {};
}

std::string Graph::to_string(int workers) const {
  std::string text;
  for (const Step& step : steps) {
    text += fmt::format("{:<12} {:<50} reads", step.name, tasks_of(step, workers));
    for (const Step::Read& read : step.reads)
      text += fmt::format(" {}{}", buffers[static_cast<std::size_t>(read.buffer)].name, read.whole ? "" : " (a part)");
    text += ", writes";
    for (const int buffer : step.writes) text += " " + buffers[static_cast<std::size_t>(buffer)].name;
    text += "\n";
  }
  return text;
}

std::string Graph::to_dot(int workers) const {
  const Unrolled unrolled(*this);
  const int count = static_cast<int>(steps.size());
  std::string text = "digraph token {\n  node [shape=box]\n";
  for (int i = 0; i < count; ++i) {
    const Step& step = unrolled.step(i);
    text += fmt::format("  s{} [label=\"{}\\n{}\"]\n", i, step.name, tasks_of(step, workers));
  }
  for (int i = 0; i < count; ++i) {
    for (const Step::Read& read : unrolled.step(i).reads) {
      // A step of the second token reads what the first has written, too.
      const int writer = unrolled.writer_before(count + i, read.buffer);
      if (writer < 0) continue;
      text += fmt::format("  s{} -> s{} [label=\"{}\"{}{}]\n", writer % count, i,
                          buffers[static_cast<std::size_t>(read.buffer)].name, read.whole ? "" : ", style=dashed",
                          writer < count ? ", constraint=false" : "");
    }
  }
  return text + "}\n";
}

bool keeps_sums(const MatrixShape& matrix, int workers) {
  if (matrix.slices == 0 || matrix.group_tiles > 0 || matrix.passes() <= 1) return true;
  return share_of(matrix.tiles, workers, 0).count <= kMaxPassTiles;
}

Result<TaskLists> plan_static(const Graph& graph, int workers, std::int64_t packets_at) {
  TaskLists lists;
  lists.count = static_cast<int>(graph.steps.size());
  const Unrolled unrolled(graph);
  const auto offset_of = [&](int buffer_index) {
    const Buffer& buffer = graph.buffers[static_cast<std::size_t>(buffer_index)];
    return buffer.offset + (is_packets(buffer.storage) ? packets_at : 0);
  };
  for (int worker = 0; worker < workers; ++worker) {
    for (int index = 0; index < lists.count; ++index) {
      const Step& step = unrolled.step(index);
      if (!keeps_sums(step.matrix, workers))
        return invalid_argument(fmt::format(
            "step {} has {} tiles of {} slices for {} workers; allowed: {} for each worker, if a tile has "
            "more than {} slices",
            step.name, step.matrix.tiles, step.matrix.slices, workers, kMaxPassTiles, step.matrix.most_slices));
      const Share tiles = share_of(step.matrix.tiles, workers, worker);
      const bool has_tiles = step.matrix.tiles > 0;
      const int reader = step.writes.empty() ? -1 : unrolled.reader_after(index, step.writes[0]);
      lists.tasks.push_back(
          {.kind = step.kind,
           .layer = step.layer,
           .first = has_tiles ? tiles.first : worker,
           .count = has_tiles ? tiles.count : (step.units - worker + workers - 1) / workers,
           .matrix = step.matrix,
           .weights = step.weights,
           .in = step.reads.empty() ? 0 : offset_of(step.reads[0].buffer),
           .out = step.writes.empty() ? 0 : offset_of(step.writes[0]),
           .out_norm = step.out_norm,
           .rank_sums = step.rank_sums < 0 ? -1 : offset_of(step.rank_sums),
           .in_norm_rows = step.in_norm_rows,
           .epilogue = step.epilogue,
           .out_later = static_cast<std::int16_t>(reader < 0 ? 0 : unrolled.tag(reader) - unrolled.tag(index))});
    }
  }
  return lists;
}

}  // namespace farwarp::fleet
