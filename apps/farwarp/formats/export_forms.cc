#include "export_forms.h"

namespace farwarp::cli {
namespace {

constexpr std::string_view kGemm = R"(import torch


def run(x, w, bias=None):
    y = x.float() @ w.float().T
    return (y if bias is None else y + bias.float()).to(x.dtype)
)";

constexpr std::string_view kAllGatherGemm = R"(import torch


def run(x, w, bias=None):
    # Rank r has the rows r * m / ranks on of x, and w[r]; y[r] is its result.
    y = torch.einsum("mk,rnk->rmn", x.float(), w.float())
    return (y if bias is None else y + bias.float()[:, None, :]).to(x.dtype)
)";

constexpr std::string_view kReducedGemm = R"(import torch


def run(x, w, bias=None):
    # Each rank's product is rounded, and then their sum.
    terms = torch.einsum("rmk,rnk->rmn", x.float(), w.float())
    if bias is not None:
        terms = terms + bias.float()
    return terms.to(x.dtype).float().sum(0).to(x.dtype)
)";

constexpr std::string_view kAllReduce = R"(import torch


def run(x):
    return x.float().sum(0).to(x.dtype)
)";

// The expert is the stand-in of the AMD Developer Challenge 2025: a factor for each rank.
constexpr std::string_view kMoeAllToAll = R"(import torch


def run(x, indices, weights):
    ranks = x.shape[0]
    owners = indices.long() // (NUM_EXPERTS // ranks)
    factors = (weights * (1 + owners)).sum(-1, keepdim=True)
    return (x.float() * factors).to(x.dtype)
)";

const ExportForm kForms[] = {
    {"ag-gemm",
     {"m"},
     {"n", "k"},
     {"n"},
     {{"x", {"m", "k"}}, {"w", {"ranks", "n_of_rank", "k"}}},
     {"ranks", "n_of_rank"},
     {"y", {"ranks", "m", "n_of_rank"}},
     "All-gather of x, of which each rank has m / ranks rows, times each rank's own weights.",
     kAllGatherGemm},
    {"all-reduce",
     {"elements"},
     {},
     {},
     {{"x", {"ranks", "elements"}}},
     {},
     {"y", {"elements"}},
     "The sum over all ranks, on every rank.",
     kAllReduce},
    {"gemm",
     {"m"},
     {"n", "k"},
     {},
     {{"x", {"m", "k"}}, {"w", {"n", "k"}}},
     {"n"},
     {"y", {"m", "n"}},
     "A matrix product on one device.",
     kGemm},
    {"gemm-ar",
     {"m"},
     {"n", "k"},
     {"k"},
     {{"x", {"ranks", "m", "k_of_rank"}}, {"w", {"ranks", "n", "k_of_rank"}}},
     {"n"},
     {"y", {"m", "n"}},
     "The sum over all ranks of products over their parts of k, on every rank.",
     kReducedGemm},
    {"gemm-rs",
     {"m"},
     {"n", "k"},
     {"k"},
     {{"x", {"ranks", "m", "k_of_rank"}}, {"w", {"ranks", "n", "k_of_rank"}}},
     {"n"},
     {"y", {"m", "n"}},
     "The sum over all ranks of products over their parts of k; rank r has the rows r * m / ranks on.",
     kReducedGemm},
    {"moe-a2a",
     {"max_num_tokens"},
     {"num_experts", "experts_per_token", "hidden_dim"},
     {},
     {{"x", {"ranks", "max_num_tokens", "hidden_dim"}},
      {"indices", {"ranks", "max_num_tokens", "experts_per_token"}, "int32"},
      {"weights", {"ranks", "max_num_tokens", "experts_per_token"}, "float32"}},
     {},
     {"y", {"ranks", "max_num_tokens", "hidden_dim"}},
     "MoE dispatch, experts and combine. The experts of rank r multiply by 1 + r; experts are numbered rank by rank.",
     kMoeAllToAll},
};

}  // namespace

std::span<const ExportForm> export_forms() { return kForms; }

}  // namespace farwarp::cli
