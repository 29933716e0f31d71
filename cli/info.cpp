// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>

#include "args.hpp"
#include "commands.hpp"
#include "failure.hpp"
#include "io/error.hpp"
#include "io/trace.hpp"
#include "table.hpp"

namespace dosa::cli {
namespace {

using Json = nlohmann::ordered_json;

struct InfoArgs {
  std::string file;
  bool json = false;
};

/// What a trace holds beside its shape. Counts are of elements.
struct Facts {
  std::int64_t empty_rows = 0;
  std::int64_t shortest = 0, longest = 0;
  double mean_window = 0;
  std::int64_t nan_q = 0, nan_k = 0;
  double smallest_scale = std::numeric_limits<double>::infinity();  // of the normal positive ones
  double largest_scale = 0;
  std::int64_t zero_scales = 0, negative_scales = 0, subnormal_scales = 0, nonfinite_scales = 0;
  double mean_positive_heads = 0, mean_negative_heads = 0;
  std::int64_t nonfinite_weights = 0;
};

std::int64_t count_nan_codes(std::span<const std::uint8_t> codes) {
  constexpr int kNanMagnitude = 0x7f;
  return std::count_if(codes.begin(), codes.end(),
                       [](std::uint8_t code) { return (code & kNanMagnitude) == kNanMagnitude; });
}

void look_at_windows(const dosa_problem& problem, Facts& facts) {
  double sum = 0;
  for (std::int64_t row = 0; row < problem.num_queries; ++row) {
    const std::int64_t start = std::clamp<std::int64_t>(problem.k_start[row], 0, problem.num_keys);
    const std::int64_t end = std::clamp<std::int64_t>(problem.k_end[row], 0, problem.num_keys);
    const std::int64_t length = std::max<std::int64_t>(0, end - start);
    facts.empty_rows += length == 0 ? 1 : 0;
    facts.shortest = row == 0 ? length : std::min(facts.shortest, length);
    facts.longest = std::max(facts.longest, length);
    sum += static_cast<double>(length);
  }
  if (problem.num_queries > 0) {
    facts.mean_window = sum / static_cast<double>(problem.num_queries);
  }
}

void look_at_scales(const dosa_problem& problem, Facts& facts) {
  for (const float scale : std::span(problem.k_scale, static_cast<std::size_t>(problem.num_keys))) {
    facts.zero_scales += scale == 0 ? 1 : 0;
    facts.negative_scales += scale < 0 ? 1 : 0;
    facts.subnormal_scales += std::fpclassify(scale) == FP_SUBNORMAL ? 1 : 0;
    facts.nonfinite_scales += std::isfinite(scale) ? 0 : 1;
    if (std::isnormal(scale) && scale > 0) {
      facts.smallest_scale = std::min(facts.smallest_scale, double{scale});
      facts.largest_scale = std::max(facts.largest_scale, double{scale});
    }
  }
}

Facts look_at(const dosa_problem& problem) {
  Facts facts;
  look_at_windows(problem, facts);
  look_at_scales(problem, facts);
  const auto queries = static_cast<std::size_t>(problem.num_queries);
  const auto keys = static_cast<std::size_t>(problem.num_keys);
  facts.nan_q = count_nan_codes({problem.q, queries * static_cast<std::size_t>(problem.q_stride)});
  facts.nan_k = count_nan_codes({problem.k, keys * static_cast<std::size_t>(problem.k_stride)});
  std::int64_t positive = 0;
  std::int64_t negative = 0;
  const auto heads = static_cast<std::size_t>(problem.num_heads);
  for (const float weight : std::span(problem.weights, queries * heads)) {
    positive += weight > 0 ? 1 : 0;
    negative += weight < 0 ? 1 : 0;
    facts.nonfinite_weights += std::isfinite(weight) ? 0 : 1;
  }
  if (queries > 0) {
    facts.mean_positive_heads = static_cast<double>(positive) / static_cast<double>(queries);
    facts.mean_negative_heads = static_cast<double>(negative) / static_cast<double>(queries);
  }
  return facts;
}

Json facts_json(const dosa_problem& problem, const Facts& facts) {
  return {{"queries", problem.num_queries},
          {"keys", problem.num_keys},
          {"heads", problem.num_heads},
          {"head_dim", problem.head_dim},
          {"windows",
           {{"min", facts.shortest},
            {"mean", facts.mean_window},
            {"max", facts.longest},
            {"empty", facts.empty_rows}}},
          {"k_scale",
           {{"min", facts.smallest_scale},
            {"max", facts.largest_scale},
            {"zero", facts.zero_scales},
            {"negative", facts.negative_scales},
            {"subnormal", facts.subnormal_scales},
            {"nonfinite", facts.nonfinite_scales}}},
          {"nan_codes", {{"q", facts.nan_q}, {"k", facts.nan_k}}},
          {"weights",
           {{"mean_positive_heads", facts.mean_positive_heads},
            {"mean_negative_heads", facts.mean_negative_heads},
            {"nonfinite", facts.nonfinite_weights}}}};
}

void print_facts(const dosa_problem& problem, const Facts& facts) {
  const auto q_codes = static_cast<double>(problem.num_queries * problem.q_stride);
  const auto k_codes = static_cast<double>(problem.num_keys * problem.k_stride);
  Table table({Table::Align::kLeft, Table::Align::kLeft});
  table.add({"shape", fmt::format("Q = {}, N = {}, H = {}, D = {}", grouped(problem.num_queries),
                                  grouped(problem.num_keys), problem.num_heads, problem.head_dim)});
  table.add({"windows",
             fmt::format("{} to {} keys, mean {:.1f}; {} empty", grouped(facts.shortest),
                         grouped(facts.longest), facts.mean_window, grouped(facts.empty_rows))});
  const bool any_scale = facts.largest_scale > 0;
  table.add({"k_scale",
             (any_scale ? fmt::format("{:.4g} to {:.4g}", facts.smallest_scale, facts.largest_scale)
                        : std::string("none positive and normal")) +
                 fmt::format("; {} zero, {} negative, {} subnormal, {} NaN or Inf",
                             grouped(facts.zero_scales), grouped(facts.negative_scales),
                             grouped(facts.subnormal_scales), grouped(facts.nonfinite_scales))});
  table.add(
      {"weights", fmt::format("{:.1f} positive and {:.1f} negative heads per row; {} NaN or Inf",
                              facts.mean_positive_heads, facts.mean_negative_heads,
                              grouped(facts.nonfinite_weights))});
  table.add({"NaN codes",
             fmt::format("q {} ({}), k {} ({})", grouped(facts.nan_q),
                         percent(static_cast<double>(facts.nan_q), q_codes), grouped(facts.nan_k),
                         percent(static_cast<double>(facts.nan_k), k_codes))});
  fmt::print("\n{}", table.text());
}

void print_file(const std::string& path, const io::SafeTensors& file) {
  std::uint64_t bytes = 0;
  Table table({Table::Align::kLeft, Table::Align::kLeft, Table::Align::kRight});
  for (const io::Tensor& tensor : file.tensors()) {
    const std::string name = io::printable(tensor.name);
    table.add({name.substr(1, name.size() - 2), io::describe(tensor.dtype, tensor.shape),
               grouped(static_cast<std::int64_t>(tensor.data.size()))});
    bytes += tensor.data.size();
  }
  fmt::print("{}: {} tensors, {}\n\n{}", path, file.tensors().size(), bytes_text(bytes),
             table.text());
  Table metadata({Table::Align::kLeft, Table::Align::kLeft});
  for (const auto& [name, value] : file.metadata()) {
    metadata.add({io::printable(name), io::printable(value)});
  }
  if (!file.metadata().empty()) {
    fmt::print("\nmetadata\n{}", metadata.text());
  }
}

Json file_json(const io::SafeTensors& file) {
  Json tensors = Json::array();
  for (const io::Tensor& tensor : file.tensors()) {
    tensors.push_back({{"name", tensor.name},
                       {"dtype", io::dtype_name(tensor.dtype)},
                       {"shape", tensor.shape},
                       {"bytes", tensor.data.size()}});
  }
  return {{"tensors", tensors}, {"metadata", file.metadata()}};
}

io::Trace as_trace(const std::string& path, io::SafeTensors file) {
  try {
    return io::Trace(std::move(file));
  } catch (const io::Error& error) {
    throw Failure(io::printable(path) + ": " + error.what());
  }
}

void print_json(const std::string& path, io::SafeTensors file) {
  Json json = file_json(file);
  if (io::looks_like_trace(file)) {
    const io::Trace trace = as_trace(path, std::move(file));
    json["trace"] = facts_json(trace.problem(), look_at(trace.problem()));
  }
  fmt::print("{}\n", json.dump(2, ' ', false, Json::error_handler_t::replace));
}

int info(const InfoArgs& args) {
  io::SafeTensors file = io::SafeTensors::open(args.file);
  if (args.json) {
    print_json(args.file, std::move(file));
    return kSuccess;
  }
  print_file(args.file, file);
  if (io::looks_like_trace(file)) {
    const io::Trace trace = as_trace(args.file, std::move(file));
    print_facts(trace.problem(), look_at(trace.problem()));
  }
  return kSuccess;
}

}  // namespace

void add_info(CLI::App& app, Action& chosen) {
  CLI::App* command = app.add_subcommand("info", "Say what a safetensors file holds");
  const auto args = std::make_shared<InfoArgs>();
  add_input(*command, args->file, "FILE", "A trace, a result or any other safetensors file");
  command->add_flag("--json", args->json, "Print the report as JSON");
  command->callback([args, &chosen] { chosen = [args] { return info(*args); }; });
}

}  // namespace dosa::cli
