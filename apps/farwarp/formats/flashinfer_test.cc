// FlashInfer-Bench's definitions and workloads: what is read, what is refused, and that ours come back as they went.
#include "flashinfer.h"

#include <algorithm>
#include <tuple>

#include "export_flashinfer.h"
#include "formats_test.h"

namespace farwarp::cli {
namespace {

json gemm_definition() {
  return {
      {"name", "gemm_n64_k32"},
      {"op_type", "gemm"},
      {"axes",
       {{"M", {{"type", "var"}}},
        {"N", {{"type", "const"}, {"value", 64}}},
        {"K", {{"type", "const"}, {"value", 32}}}}},
      {"inputs",
       {{"A", {{"shape", {"M", "K"}}, {"dtype", "float16"}}}, {"B", {{"shape", {"N", "K"}}, {"dtype", "float16"}}}}},
      {"outputs", {{"C", {{"shape", {"M", "N"}}, {"dtype", "float16"}}}}},
      {"reference", "def run(A, B):\n    return A @ B.T"}};
}
json workload_of(const json& definition, json axes, json inputs = json::object()) {
  for (const auto& [name, spec] : definition["inputs"].items()) {
    if (!inputs.contains(name)) inputs[name] = {{"type", "random"}};
  }
  return {{"definition", definition["name"]},
          {"workload", {{"uuid", "0123456789ab"}, {"axes", std::move(axes)}, {"inputs", std::move(inputs)}}},
          {"solution", nullptr},
          {"evaluation", nullptr}};
}

TEST_F(Formats, AGemmIsReadWithItsWorkloads) {
  const json definition = gemm_definition();
  const std::string file = write("definitions/gemm/gemm_n64_k32.json", definition.dump());
  const std::string lines =
      workload_of(definition, {{"M", 5}}).dump() + "\n\n" + workload_of(definition, {{"M", 300}}).dump();
  const std::string workloads = write("workloads/gemm/gemm_n64_k32.jsonl", lines);
  for (const std::string& path : {file, workloads, folder_.string()}) {
    const auto loaded = load_any_suite(path, "");
    ASSERT_TRUE(loaded.ok()) << loaded.status().message();
    ASSERT_EQ(loaded->suite.entries.size(), 2u);
    EXPECT_EQ(loaded->suite.entries[1].op, "gemm");
    EXPECT_EQ(loaded->suite.entries[1].params, (Params{{"m", "300"}, {"n", "64"}, {"k", "32"}, {"dtype", "fp16"}}));
    EXPECT_EQ(loaded->suite.entries[1].about, "gemm_n64_k32 01234567");
    EXPECT_EQ(loaded->suite.ranks, 1);
  }
}

TEST_F(Formats, WhatWeDoNotComputeIsRefusedByName) {
  const auto error = [&](const json& definition, const json& axes, const json& inputs = json::object()) {
    const std::string name = definition["name"];
    write(name + ".jsonl", workload_of(definition, axes, inputs).dump());
    return error_of(write(name + ".json", definition.dump()));
  };
  json definition = gemm_definition();
  definition["op_type"] = "rmsnorm";
  EXPECT_EQ(error(definition, {{"M", 5}}),
            "F/gemm_n64_k32.json: op_type is \"rmsnorm\": allowed is gemm, gqa_paged or gqa_ragged");
  definition = gemm_definition();
  definition["inputs"]["A"]["dtype"] = "float8_e4m3fn";
  EXPECT_EQ(error(definition, {{"M", 5}}),
            "F/gemm_n64_k32.jsonl: line 1: inputs.A.dtype is \"float8_e4m3fn\": allowed is float16 or bfloat16");
  definition = gemm_definition();
  definition["inputs"]["A_scale"] = {{"shape", {"M"}}, {"dtype", "float32"}};
  EXPECT_EQ(error(definition, {{"M", 5}}), "F/gemm_n64_k32.jsonl: line 1: inputs has \"A_scale\": allowed is A, B");
  definition = gemm_definition();
  EXPECT_EQ(error(definition, json::object()),
            "F/gemm_n64_k32.jsonl: line 1: workload.axes.M is null: allowed is an integer in 0..2147483647");
  EXPECT_EQ(error(definition, {{"M", 5}, {"N", 65}}),
            "F/gemm_n64_k32.jsonl: line 1: workload.axes.N is 65: allowed is 64");
  definition["axes"]["K"]["value"] = 30;
  EXPECT_EQ(error(definition, {{"M", 5}}),
            "F/gemm_n64_k32.jsonl: line 1: parameter k is '30': allowed is a multiple of 8");
  EXPECT_EQ(error_of(write("alone.json", gemm_definition().dump())),
            "F/alone.json: there is no alone.jsonl beside it or under F/workloads");
}

TEST_F(Formats, AFolderSkipsWhatWeDoNotCompute) {
  json definition = gemm_definition(), other = gemm_definition();
  other["name"] = "norm";
  other["op_type"] = "rmsnorm";
  write("definitions/gemm/gemm_n64_k32.json", definition.dump());
  write("workloads/gemm/gemm_n64_k32.jsonl", workload_of(definition, {{"M", 5}}).dump());
  write("definitions/rmsnorm/norm.json", other.dump());
  write("workloads/rmsnorm/norm.jsonl", workload_of(other, {{"M", 5}}).dump());
  const auto loaded = load_any_suite(folder_.string(), "");
  ASSERT_TRUE(loaded.ok()) << loaded.status().message();
  EXPECT_EQ(loaded->suite.entries.size(), 1u);
  ASSERT_TRUE(loaded->skipped.contains("norm"));
  EXPECT_EQ(loaded->skipped.at("norm").cases, 1);
  EXPECT_EQ(loaded->skipped.at("norm").reason, "op_type is \"rmsnorm\": allowed is gemm, gqa_paged or gqa_ragged");
}

json tensor(const std::string& key) {
  return {{"type", "safetensors"}, {"path", "./blob/lengths.safetensors"}, {"tensor_key", key}};
}
json constant(int value) { return {{"type", "const"}, {"value", value}}; }
json variable() { return {{"type", "var"}}; }
json spec(std::initializer_list<const char*> shape, const char* dtype) {
  return {{"shape", std::vector<std::string>(shape.begin(), shape.end())}, {"dtype", dtype}};
}

json decode_definition() {
  json definition = {{"name", "gqa_paged_decode_h8_kv2_d64_ps16"}, {"op_type", "gqa_paged"}};
  definition["axes"] = {{"batch_size", variable()},     {"num_pages", variable()},     {"len_indptr", variable()},
                        {"num_kv_indices", variable()}, {"num_qo_heads", constant(8)}, {"num_kv_heads", constant(2)},
                        {"head_dim", constant(64)},     {"page_size", constant(16)}};
  definition["inputs"] = {{"q", spec({"batch_size", "num_qo_heads", "head_dim"}, "bfloat16")},
                          {"k_cache", spec({"num_pages", "page_size", "num_kv_heads", "head_dim"}, "bfloat16")},
                          {"v_cache", spec({"num_pages", "page_size", "num_kv_heads", "head_dim"}, "bfloat16")},
                          {"kv_indptr", spec({"len_indptr"}, "int32")},
                          {"kv_indices", spec({"num_kv_indices"}, "int32")},
                          {"kv_last_page_len", spec({"batch_size"}, "int32")},
                          {"sm_scale", {{"shape", nullptr}, {"dtype", "float32"}}}};
  definition["outputs"] = {{"output", spec({"batch_size", "num_qo_heads", "head_dim"}, "bfloat16")}};
  return definition;
}
const json kDecodeAxes = {{"batch_size", 3}, {"num_pages", 9}, {"len_indptr", 4}, {"num_kv_indices", 6}};

TEST_F(Formats, ADecodeHasTheLengthsOfItsTensors) {
  const json definition = decode_definition();
  write_tensors("blob/lengths.safetensors", {{"kv_indptr", {0, 2, 2, 6}}, {"last", {5, 1, 16}}});
  json inputs = {{"kv_indptr", tensor("kv_indptr")},
                 {"kv_last_page_len", tensor("last")},
                 {"sm_scale", {{"type", "scalar"}, {"value", 0.125}}}};
  const std::string name = definition["name"],
                    file = write("definitions/gqa_paged/" + name + ".json", definition.dump());
  const auto write_workload = [&] {
    write("workloads/gqa_paged/" + name + ".jsonl", workload_of(definition, kDecodeAxes, inputs).dump());
  };
  write_workload();
  const auto loaded = load_any_suite(file, "");
  ASSERT_TRUE(loaded.ok()) << loaded.status().message();
  ASSERT_EQ(loaded->suite.entries.size(), 1u);
  EXPECT_EQ(loaded->suite.entries[0].op, "flash-decode");
  EXPECT_EQ(loaded->suite.entries[0].params, (Params{{"batch", "3"},
                                                     {"query_heads", "8"},
                                                     {"kv_heads", "2"},
                                                     {"head_dim", "64"},
                                                     {"page_size", "16"},
                                                     {"max_keys", "64"},
                                                     {"lengths", "21+0+64"},
                                                     {"dtype", "bf16"}}));
  const std::string at = "F/workloads/gqa_paged/" + name + ".jsonl: line 1: ";
  inputs["sm_scale"]["value"] = 0.5;
  write_workload();
  EXPECT_EQ(error_of(file),
            at + "workload.inputs.sm_scale is {\"type\":\"scalar\",\"value\":0.5}: allowed is the scalar "
                 "0.125 (1 / sqrt(head_dim))");
  inputs["sm_scale"]["value"] = 0.125;
  inputs["kv_indptr"] = {{"type", "random"}};
  write_workload();
  EXPECT_EQ(error_of(file),
            at + "workload.inputs.kv_indptr is {\"type\":\"random\"}: allowed is a safetensors file with "
                 "path and tensor_key");
  inputs["kv_indptr"] = tensor("none");
  write_workload();
  EXPECT_EQ(error_of(file),
            at + "F/./blob/lengths.safetensors: tensor 'none' is missing: allowed is a list of int32 or int64");
  inputs["kv_indptr"] = tensor("last");
  write_workload();
  EXPECT_EQ(error_of(file), at + "kv_indptr: allowed are two or more numbers from 0 on that do not decrease");
}

TEST_F(Formats, ARaggedPrefillHasTheLengthsOfItsTensors) {
  json definition = {{"name", "gqa_ragged_prefill_causal_h4_kv1_d128"}, {"op_type", "gqa_ragged"}};
  definition["axes"] = {{"total_q", variable()},       {"total_kv", variable()},      {"len_indptr", variable()},
                        {"num_qo_heads", constant(4)}, {"num_kv_heads", constant(1)}, {"head_dim", constant(128)}};
  definition["inputs"] = {{"q", spec({"total_q", "num_qo_heads", "head_dim"}, "float16")},
                          {"k", spec({"total_kv", "num_kv_heads", "head_dim"}, "float16")},
                          {"v", spec({"total_kv", "num_kv_heads", "head_dim"}, "float16")},
                          {"qo_indptr", spec({"len_indptr"}, "int32")},
                          {"kv_indptr", spec({"len_indptr"}, "int32")}};
  definition["outputs"] = {{"output", spec({"total_q", "num_qo_heads", "head_dim"}, "float16")}};
  write_tensors("blob/lengths.safetensors", {{"q", {0, 7, 40}}, {"kv", {0, 30, 70}}});
  const std::string name = definition["name"];
  write("workloads/gqa_ragged/" + name + ".jsonl",
        workload_of(definition, {{"total_q", 40}, {"total_kv", 70}, {"len_indptr", 3}},
                    {{"qo_indptr", tensor("q")}, {"kv_indptr", tensor("kv")}})
            .dump());
  const auto loaded = load_any_suite(write("definitions/gqa_ragged/" + name + ".json", definition.dump()), "");
  ASSERT_TRUE(loaded.ok()) << loaded.status().message();
  EXPECT_EQ(loaded->suite.entries[0].op, "attention");
  EXPECT_EQ(loaded->suite.entries[0].params, (Params{{"batch", "2"},
                                                     {"heads", "4"},
                                                     {"kv_heads", "1"},
                                                     {"head_dim", "128"},
                                                     {"queries", "33"},
                                                     {"keys", "40"},
                                                     {"query_lengths", "7+33"},
                                                     {"key_lengths", "30+40"},
                                                     {"causal", "1"},
                                                     {"dtype", "fp16"}}));
}

TEST_F(Formats, WhatIsExportedIsReadBack) {
  using Case = std::tuple<Params, int>;
  for (const char* name : {"amd2025", "all_reduce", "serving"}) {
    const auto suite = harness::load_suite(name);
    ASSERT_TRUE(suite.ok()) << suite.status().message();
    for (const char* op : {"moe-a2a", "gemm-rs", "ag-gemm", "gemm-ar", "all-reduce"}) {
      std::vector<SuiteEntry> entries;
      for (const SuiteEntry& entry : suite->entries) {
        if (entry.op == op) entries.push_back(entry);
      }
      if (entries.empty()) continue;
      const fs::path folder = folder_ / name / op;
      const auto files = export_flashinfer(op, entries, folder);
      ASSERT_TRUE(files.ok()) << files.status().message();
      const auto loaded = load_any_suite(folder.string(), "");
      ASSERT_TRUE(loaded.ok()) << loaded.status().message();
      EXPECT_TRUE(loaded->skipped.empty());
      const auto cases_of = [&](const std::vector<SuiteEntry>& from) {
        std::vector<Case> cases;
        for (const SuiteEntry& entry : from) {
          EXPECT_EQ(entry.op, op);
          cases.emplace_back(entry.params, entry.ranks);
        }
        std::sort(cases.begin(), cases.end());
        return cases;
      };
      EXPECT_EQ(cases_of(loaded->suite.entries), cases_of(entries)) << name << " " << op;
    }
  }
}

TEST_F(Formats, ADefinitionOfOursHasARanksAxisAndAReference) {
  SuiteEntry entry;
  entry.op = "gemm-rs";
  entry.params = {{"m", "64"}, {"n", "512"}, {"k", "256"}, {"has_bias", "1"}, {"dtype", "fp16"}};
  entry.ranks = 4;
  const auto files = export_flashinfer("gemm-rs", {entry}, folder_);
  ASSERT_TRUE(files.ok()) << files.status().message();
  ASSERT_EQ(files->size(), 2u);
  std::ifstream definition_file((*files)[0]), workload_file((*files)[1]);
  const json definition = json::parse(definition_file), workload = json::parse(workload_file);
  EXPECT_EQ(definition["axes"]["ranks"]["type"], "var");
  EXPECT_EQ(definition["axes"]["k"]["value"], 256);
  EXPECT_EQ(definition["inputs"]["x"], (json{{"shape", {"ranks", "m", "k_of_rank"}}, {"dtype", "float16"}}));
  EXPECT_TRUE(definition["inputs"].contains("bias"));
  EXPECT_NE(definition["reference"].get<std::string>().find("def run(x, w, bias=None):"), std::string::npos);
  EXPECT_EQ(workload["workload"]["axes"], (json{{"ranks", 4}, {"m", 64}, {"k_of_rank", 64}}));
  EXPECT_EQ(export_flashinfer("attention", {}, folder_).status().message(),
            "--export-flashinfer is 'attention': allowed is ag-gemm, all-reduce, gemm, gemm-ar, gemm-rs, moe-a2a");
}

TEST_F(Formats, MutatedDefinitionsAreReadOrRefusedInOneLine) {
  const json definition = decode_definition();
  const std::string workload =
      workload_of(definition, kDecodeAxes, {{"kv_indptr", tensor("kv_indptr")}, {"kv_last_page_len", tensor("last")}})
          .dump();
  write_tensors("blob/lengths.safetensors", {{"kv_indptr", {0, 2, 2, 6}}, {"last", {5, 1, 16}}});
  const auto parsed = parse_definition(definition.dump());
  ASSERT_TRUE(parsed.ok()) << parsed.status().message();
  int refused = 0;
  const auto count = [&](const Status& status) {
    refused += status.ok() ? 0 : 1;
    EXPECT_EQ(status.message().find_first_of("\r\n"), std::string::npos) << status.message();
  };
  for (std::uint64_t round = 0; round < 1000; ++round) {
    const auto other = parse_definition(mutated(definition.dump(), round));
    count(other.status());
    const Definition& used = other.ok() ? *other : *parsed;
    const auto line = parse_workload(other.ok() ? workload : mutated(workload, round), used);
    count(line.status());
    if (line.ok()) count(import_workload(used, *line, folder_).status());
  }
  EXPECT_GT(refused, 500);
}

}  // namespace
}  // namespace farwarp::cli
