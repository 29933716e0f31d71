// SPDX-License-Identifier: Apache-2.0
// The modes of the device engine against each other and against peers.
#include "bench.hpp"

#include <fmt/format.h>

#include <cstdio>
#include <memory>
#include <utility>

#include "bench_peer.hpp"
#include "device/bench_report.hpp"
#include "device/device.hpp"
#include "failure.hpp"
#include "io/output_file.hpp"
#include "io/trace.hpp"

namespace dosa::cli {
namespace {

std::vector<DeviceContender> peers_of(const BenchArgs& args) {
  std::vector<DeviceContender> peers;
  for (const std::string& spec : args.peers) {
    const bench::PeerFunction found = bench::load_peer(spec, "dosa_bench_peer_cuda_topk");
    peers.push_back({found.name, DOSA_MODE_BASE, 0, DOSA_MODEL_DEFAULT,
                     reinterpret_cast<DevicePeer>(found.address)});
  }
  return peers;
}

/// `dosa` with each number of retained heads that is asked for; by default those that fill
/// R' = 8, 16 and 24 rows.
std::vector<DeviceContender> contenders(const BenchArgs& args, int heads,
                                        const std::vector<DeviceContender>& peers) {
  std::vector<DeviceContender> all;
  for (const auto& [name, mode] :
       {std::pair{"base", DOSA_MODE_BASE}, {"full", DOSA_MODE_FULL}, {"auto", DOSA_MODE_AUTO}}) {
    if (wanted(args, name)) all.push_back({name, mode, 0, args.score_model});
  }
  const std::vector<int> retained = args.heads.empty() ? std::vector<int>{6, 14, 22} : args.heads;
  for (const auto& [name, mode] :
       {std::pair{"screen", DOSA_MODE_SCREEN}, {"dosa", DOSA_MODE_DOSA}}) {
    for (const int r : retained) {
      if (wanted(args, name) && r <= heads) all.push_back({name, mode, r, args.score_model});
    }
  }
  all.insert(all.end(), peers.begin(), peers.end());
  return all;
}

}  // namespace

int bench_on_device(BenchArgs args) {
  const std::string device = require_device();
  check_inputs(args);
  const std::vector<DeviceContender> peers = peers_of(args);
  const std::unique_ptr<io::OutputFile> json =
      args.json.empty() ? nullptr : std::make_unique<io::OutputFile>(args.json);
  const Ceilings ceilings = args.no_ceilings ? no_ceilings() : measure_ceilings();
  const nlohmann::ordered_json head = device_header(device, args.cell.repetitions, ceilings);
  fmt::print("{}", device_head(head, ceilings));
  std::fflush(stdout);
  DeviceCells runner(args.cell.repetitions, args.phase_calls);
  std::vector<DeviceCell> cells;
  for (const StudySource& source : sources(args)) {
    const StudyInput input = source.load();
    require_heads(args, input.problem.num_heads);
    DeviceProblem whole(input.problem);
    for (const std::int64_t rows : args.rows) {
      for (const std::int64_t keys : lengths(args, input.problem.num_keys)) {
        const io::ProblemPart part = io::cut(input.problem, rows, keys);
        cells.push_back(runner.run(input, part.problem, whole.cut(part.problem),
                                   contenders(args, part.problem.num_heads, peers)));
        fmt::print("{}", device_lines(cells.back(), ceilings));
        std::fflush(stdout);
      }
    }
  }
  require_cells(args, cells.empty());
  if (json != nullptr) json->commit(device_json(head, cells, ceilings).dump(1) + '\n');
  return kSuccess;
}

}  // namespace dosa::cli
