// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <memory>
#include <string>
#include <utility>

#include "args.hpp"
#include "gen.hpp"
#include "io/gen_model.hpp"

namespace dosa::cli {
namespace {

constexpr std::int64_t kMostStride = 1 << 20;

constexpr std::array<Choice, 3> kDomains = {
    {{"en", static_cast<std::int32_t>(io::GenDomain::kEnglish)},
     {"zh", static_cast<std::int32_t>(io::GenDomain::kChinese)},
     {"code", static_cast<std::int32_t>(io::GenDomain::kCode)}}};

struct ModelArgs {
  std::int32_t layer = 10;
  std::int32_t domain = static_cast<std::int32_t>(io::GenDomain::kEnglish);
  std::int32_t rows = 0;
  std::int64_t stride = 1;
};

using Preset = io::GenModel (*)(int rows, int layer, io::GenDomain domain);

GenKind kind(std::string name, std::string help, std::array<std::int32_t, 2> rows, Preset preset) {
  const auto declare = [=](CLI::App& command) {
    const auto args = std::make_shared<ModelArgs>();
    args->rows = rows[0];
    add_integer(command, "--layer", args->layer, 0, io::kGenLayers - 1,
                "Layer; 0 has the flattest scores");
    add_choice(command, "--domain", kDomains, args->domain, "Kind of text");
    const std::string variants = std::to_string(rows[0]) + " or " + std::to_string(rows[1]);
    add_integer(command, "--rows", args->rows, rows[0], rows[1],
                "Screening rows of the variant: " + variants);
    add_integer(command, "--stride", args->stride, 1, kMostStride,
                "Tokens from one query row to the next; the last row is the last token");
    return [args, preset](const GenCommon& common) {
      const auto domain = static_cast<io::GenDomain>(args->domain);
      const io::GenModel model = preset(args->rows, args->layer, domain);
      const io::GenShape shape{common.queries, common.keys, args->stride, common.seed, 0};
      Generated made{io::generate(model, shape), {}};
      made.metadata["layer"] = std::to_string(args->layer);
      made.metadata["domain"] = std::string(choice_name(kDomains, args->domain));
      made.metadata["rows"] = std::to_string(args->rows);
      made.metadata["stride"] = std::to_string(args->stride);
      return made;
    };
  };
  return {std::move(name), std::move(help), declare};
}

}  // namespace

std::vector<GenKind> model_kinds() {
  return {kind("glm52", "A workload calibrated to what is published for GLM-5.2", {8, 16},
               io::glm52_model),
          kind("dsv32", "The same with 64 heads, an extrapolation to DeepSeek-V3.2", {16, 32},
               io::dsv32_model)};
}

}  // namespace dosa::cli
