// SPDX-License-Identifier: Apache-2.0
#include "bench_peer.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <iterator>

#include "failure.hpp"
#include "io/error.hpp"

namespace dosa::bench {

PeerFunction load_peer(const std::string& spec, const char* function) {
  const std::size_t equals = spec.find('=');
  if (equals == std::string::npos || equals == 0) {
    throw cli::Failure("--peer", io::printable(spec), "NAME=FILE");
  }
  std::string file = spec.substr(equals + 1);
  // Without a slash the loader would search the system's folders instead.
  if (file.find('/') == std::string::npos) file.insert(0, "./");
  void* library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    throw cli::Failure("--peer", io::printable(dlerror()), "a shared library that loads");
  }
  void* const found = dlsym(library, function);
  if (found == nullptr) {
    throw cli::Failure("--peer", io::printable(file) + " without it",
                       std::string("a library with ") + function + "()");
  }
  return {spec.substr(0, equals), found};
}

Peer::Peer(const std::string& spec) {
  const PeerFunction found = load_peer(spec, "dosa_bench_peer_topk");
  name_ = found.name;
  topk_ = reinterpret_cast<TopK>(found.address);
}

void Peer::topk(const dosa_problem& problem, int threads, std::int32_t* ids) const {
  const int status = topk_(&problem, threads, ids);
  if (status != 0) {
    throw cli::Failure(name_, "status " + std::to_string(status), "0 from dosa_bench_peer_topk()");
  }
}

double ids_in_common(const dosa_problem& problem, const std::vector<std::int32_t>& expected,
                     const std::vector<std::int32_t>& found) {
  std::int64_t all = 0;
  std::int64_t common = 0;
  const auto row_ids = [&](const std::vector<std::int32_t>& ids, std::int64_t row) {
    const auto begin = ids.begin() + row * problem.topk;
    std::vector<std::int32_t> kept;
    std::copy_if(begin, begin + problem.topk, std::back_inserter(kept),
                 [](std::int32_t id) { return id >= 0; });
    std::sort(kept.begin(), kept.end());
    return kept;
  };
#pragma omp parallel for reduction(+ : all, common)
  for (std::int64_t row = 0; row < problem.num_queries; ++row) {
    const std::vector<std::int32_t> ours = row_ids(expected, row);
    const std::vector<std::int32_t> theirs = row_ids(found, row);
    std::vector<std::int32_t> both;
    std::set_intersection(ours.begin(), ours.end(), theirs.begin(), theirs.end(),
                          std::back_inserter(both));
    all += static_cast<std::int64_t>(ours.size());
    common += static_cast<std::int64_t>(both.size());
  }
  return all == 0 ? 1.0 : static_cast<double>(common) / static_cast<double>(all);
}

}  // namespace dosa::bench
