// The probes on every target that this machine has, with tiny sizes. Emulated figures mean nothing. The tests check
// that the right words arrive at the right places, under adversarial schedules and without a race, and that each probe
// returns a figure.
#include "farwarp/probes/probes.h"

#include <set>

#include "farwarp/substrate/emu/machine.h"
#include "farwarp/world/host/world_test_fixture.h"

namespace farwarp::probes {
namespace {

class ProbesTest : public WorldTestBase {
 protected:
  static void on_probes(int ranks, const std::function<void(World&, Probes&)>& body) {
    for (std::uint64_t seed = 1; seed <= (is_real() ? 1 : 4); ++seed) {
      if (!is_real()) emu::Machine::instance().set_schedule({seed, true});
      WorldOptions with_room = options();
      with_room.heap_bytes = heap_bytes(Sizes::tiny(), ranks);
      on_worlds(ranks, with_room, [&](World& world) {
        auto probes = Probes::create(world, Sizes::tiny());
        ASSERT_TRUE(probes.ok()) << probes.status().to_string();
        body(world, **probes);
        const Status closed = (*probes)->close();
        EXPECT_TRUE(closed.ok()) << closed.to_string();
      });
      if (!is_real()) {
        EXPECT_EQ(emu::Machine::instance().report().race, "") << "seed " << seed;
      }
    }
  }

  static void expect_positive(const char* what, const Result<double>& figure) {
    ASSERT_TRUE(figure.ok()) << what << ": " << figure.status().to_string();
    EXPECT_GT(*figure, 0) << what;
  }

  static std::vector<std::uint64_t> words_of(World& world, const void* memory, std::size_t bytes) {
    std::vector<std::uint64_t> words(bytes / sizeof(std::uint64_t));
    EXPECT_TRUE(world.device().copy_out(words.data(), memory, bytes, Stream{}).ok());
    return words;
  }

  /// Expects word j to be first + j % period * kStride. Returns the first word.
  static std::uint64_t expect_sequence(const std::vector<std::uint64_t>& words, std::size_t begin, std::size_t count,
                                       std::size_t period) {
    const std::uint64_t first = words[begin];
    std::size_t wrong = 0;
    for (std::size_t j = 0; j < count; ++j) wrong += words[begin + j] != first + j % period * kStride;
    EXPECT_EQ(wrong, 0u) << "of " << count << " words from " << begin;
    return first;
  }

  static bool has_bulk_copies() { return traits_of(GetParam()).bulk_copy; }
};

TEST_P(ProbesTest, MemoryIsReadAndCopied) {
  on_probes(1, [](World& world, Probes& probes) {
    expect_positive("read", probes.memory_read());
    expect_positive("copy", probes.memory_copy());
    const auto words = words_of(world, probes.copied(), Sizes::tiny().memory_bytes);
    expect_sequence(words, 0, words.size(), words.size());
  });
}

TEST_P(ProbesTest, OneRankSendsToAnother) {
  on_probes(3, [](World& world, Probes& probes) {
    const std::size_t bytes = Sizes::tiny().link_bytes;
    expect_positive("store", probes.link_pair_store());
    std::vector<std::uint64_t> words = words_of(world, probes.received().local, bytes);
    if (world.rank() == 1) {
      expect_sequence(words, 0, words.size(), words.size());
    } else {
      EXPECT_EQ(std::set(words.begin(), words.end()).size(), 1u) << "a rank without part in it was written to";
    }
    expect_positive("load", probes.link_pair_load());
    const auto bulk = probes.link_pair_bulk();
    if (!has_bulk_copies()) {
      EXPECT_EQ(*bulk, 0);
      return;
    }
    expect_positive("bulk", bulk);
    words = words_of(world, probes.received().local, bytes);
    if (world.rank() == 1) expect_sequence(words, 0, words.size(), kTileWords);
  });
}

TEST_P(ProbesTest, AllRanksSendToAll) {
  on_probes(3, [](World& world, Probes& probes) {
    const std::size_t bytes = Sizes::tiny().link_bytes, share = bytes / sizeof(std::uint64_t) / 2;
    expect_positive("store", probes.link_all_store());
    auto words = words_of(world, probes.received().local, bytes);
    std::set<std::uint64_t> senders = {expect_sequence(words, 0, share, share),
                                       expect_sequence(words, share, share, share)};
    EXPECT_EQ(senders.size(), 2u);
    const auto bulk = probes.link_all_bulk();
    if (!has_bulk_copies()) {
      EXPECT_EQ(*bulk, 0);
      return;
    }
    expect_positive("bulk", bulk);
    words = words_of(world, probes.received().local, bytes);
    senders.insert(expect_sequence(words, 0, share, kTileWords));
    senders.insert(expect_sequence(words, share, share, kTileWords));
    EXPECT_EQ(senders.size(), 4u);
  });
}

TEST_P(ProbesTest, FlagsPacketsAndBarriersArrive) {
  on_probes(3, [](World&, Probes& probes) {
    for (int again = 0; again < 2; ++again) {
      expect_positive("packet", probes.packet());
      expect_positive("flag", probes.flag());
      expect_positive("barrier", probes.barrier());
    }
  });
}

TEST_P(ProbesTest, WeightsAreReadInEveryLayer) {
  on_probes(2, [](World&, Probes& probes) {
    for (int again = 0; again < 2; ++again) {
      for (const auto& figure : {probes.weights_alone(), probes.weights_with_edges()}) {
        if (has_bulk_copies()) {
          expect_positive("weights", figure);
        } else {
          EXPECT_EQ(*figure, 0);
        }
      }
    }
  });
}

TEST_P(ProbesTest, WeightsOfSeveralCopiesAreRead) {
  Sizes sizes = Sizes::tiny();
  sizes.memory_bytes = 24 * kTileBytes;  // up to four copies of each block
  WorldOptions with_room = options();
  with_room.heap_bytes = heap_bytes(sizes, 1);
  on_worlds(1, with_room, [&](World& world) {
    auto probes = Probes::create(world, sizes);
    ASSERT_TRUE(probes.ok()) << probes.status().to_string();
    const auto figure = (*probes)->weights_with_edges();
    EXPECT_TRUE(figure.ok()) << figure.status().to_string();
    EXPECT_TRUE((*probes)->close().ok());
  });
}

TEST_P(ProbesTest, AllRanksGetTheSameCeilings) {
  constexpr int kRanks = 2;
  Ceilings found[kRanks];
  WorldOptions with_room = options();
  with_room.heap_bytes = heap_bytes(Sizes::tiny(), kRanks);
  on_worlds(kRanks, with_room, [&](World& world) {
    const auto ceilings = measure(world, Sizes::tiny());
    ASSERT_TRUE(ceilings.ok()) << ceilings.status().to_string();
    found[world.rank()] = *ceilings;
  });
  if (IsSkipped()) return;
  EXPECT_EQ(found[0].ranks, kRanks);
  EXPECT_NE(found[0].device, "");
  EXPECT_EQ(found[0].measured(), is_real()) << found[0].source;
  for (const CeilingField& field : ceiling_fields()) {
    const std::string key = field.key;
    // An empty kernel takes the emulator no time.
    const bool available =
        (has_bulk_copies() || (key.find("bulk") == std::string::npos && key.find("weights") == std::string::npos)) &&
        (is_real() || key.find("launch") == std::string::npos);
    EXPECT_EQ(found[0].*field.value > 0, available) << key;
    EXPECT_EQ(found[0].*field.value, found[1].*field.value) << key;
  }
}

TEST_P(ProbesTest, OneRankHasNoLinks) {
  on_probes(1, [](World&, Probes& probes) {
    for (const auto& figure : {probes.link_pair_store(), probes.link_pair_load(), probes.link_all_bulk(),
                               probes.packet(), probes.flag(), probes.barrier()}) {
      ASSERT_TRUE(figure.ok()) << figure.status().to_string();
      EXPECT_EQ(*figure, 0);
    }
  });
}

TEST_P(ProbesTest, SizesOutOfRangeAreNamed) {
  on_worlds(2, options(), [](World& world) {
    Sizes sizes = Sizes::tiny();
    sizes.link_bytes = kTileBytes;
    const auto few = Probes::create(world, sizes);
    EXPECT_EQ(few.status().code(), StatusCode::kInvalidArgument);
    EXPECT_TRUE(contains(few.status().message(), "link_bytes is 16384: allowed is a multiple of 16384 in 114688.."))
        << few.status().message();
    sizes = Sizes::tiny();
    sizes.rounds = kLeastRounds - 1;
    EXPECT_TRUE(contains(Probes::create(world, sizes).status().message(), "rounds is 3: allowed is 4.."));
  });
}

INSTANTIATE_TEST_SUITE_P(Targets, ProbesTest, ::testing::ValuesIn(kAllTargets), name_of_target);

}  // namespace
}  // namespace farwarp::probes
