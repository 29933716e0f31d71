// SPDX-License-Identifier: Apache-2.0
#include "gpu/probe_report.hpp"

#include <algorithm>
#include <cstdio>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <string>

#include "gpu/probe.cuh"
#include "numeric/sm90_dot.hpp"

namespace dosa::gpu {
namespace {

using File = std::unique_ptr<std::FILE, int (*)(std::FILE*)>;

File open_for_writing(const std::string& path) {
  File file(std::fopen(path.c_str(), "wb"), &std::fclose);
  if (file == nullptr) throw std::runtime_error("cannot write " + path);
  return file;
}

void print_device() {
  cudaDeviceProp device{};
  int driver = 0;
  int runtime = 0;
  check_cuda(cudaGetDeviceProperties(&device, 0), "cudaGetDeviceProperties");
  check_cuda(cudaDriverGetVersion(&driver), "cudaDriverGetVersion");
  check_cuda(cudaRuntimeGetVersion(&runtime), "cudaRuntimeGetVersion");
  std::printf(
      "device %s, compute capability %d.%d, %d multiprocessors, driver API %d, runtime %d\n",
      device.name, device.major, device.minor, device.multiProcessorCount, driver, runtime);
}

void print_search(const char* label, const TileBatch& batch, const TileBatch& large) {
  const std::vector<Hypothesis> grid = hypothesis_grid();
  const std::vector<double> counts = count_mismatches(batch, grid, 256);
  std::vector<std::size_t> order(grid.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(),
            [&](std::size_t x, std::size_t y) { return counts[x] < counts[y]; });
  order.resize(12);
  std::vector<Hypothesis> best;
  for (const std::size_t i : order) best.push_back(grid[i]);
  const std::vector<double> final_counts = count_mismatches(large, best, ~0U);
  std::printf("%s: %zu hypotheses on %zu vectors, the best on %zu\n", label, grid.size(),
              batch.result.size(), large.result.size());
  std::printf("  fraction align result round group joins pairs rule  mismatches\n");
  for (std::size_t i = 0; i < best.size(); ++i) {
    const Hypothesis& h = best[i];
    std::printf("  %8d %5d %6d %5d %5d %5d %5d %4d  %.0f / %.0f\n", h.fraction_bits,
                h.align_rounding, h.result_bits, h.result_rounding, h.group,
                static_cast<int>(h.joining), h.interleaved, h.exponent_rule, counts[order[i]],
                final_counts[i]);
  }
}

void search_models(std::uint64_t seed) {
  constexpr int kFiniteClasses = kInputClasses - 1;
  struct Setup {
    const char* label;
    Route route;
    bool with_start;
  };
  for (const Setup& setup : {Setup{"wgmma, from zero", Route::kShared, false},
                             Setup{"wgmma, any fp32 start", Route::kShared, true},
                             Setup{"mma.sync, any fp32 start", Route::kMmaSync, true}}) {
    TileBatch small = make_batch(seed, 20, 64, 1, setup.with_start, kFiniteClasses);
    TileBatch large = make_batch(seed + 1, 2500, 64, 1, setup.with_start, kFiniteClasses);
    multiply_batch(small, setup.route);
    multiply_batch(large, setup.route);
    print_search(setup.label, small, large);
  }
}

constexpr int kRouteTiles = 120;

/// The same operands along several ways through the hardware: does any bit change?
void compare_routes(std::uint64_t seed) {
  TileBatch base = make_batch(seed, kRouteTiles, 64, 4, false, kInputClasses);
  multiply_batch(base, Route::kShared);
  TileBatch registers = base;
  multiply_batch(registers, Route::kRegisters);
  TileBatch swapped = base;
  std::swap(swapped.a, swapped.b);
  multiply_batch(swapped, Route::kShared);
  std::size_t by_source = 0;
  std::size_t by_side = 0;
  for (std::size_t i = 0; i < base.result.size(); ++i) {
    const std::size_t tile = i / 4096;
    const std::size_t transposed = tile * 4096 + (i % 64) * 64 + i / 64 % 64;
    by_source += base.result[i] != registers.result[i] ? 1U : 0U;
    by_side += base.result[i] != swapped.result[transposed] ? 1U : 0U;
  }
  std::printf("of %zu dots: %zu change with a in registers, %zu change with sides swapped\n",
              base.result.size(), by_source, by_side);
  for (const int columns : {8, 32, 128, 256}) {
    // B repeats the first eight rows of the base tile, so every width sees the same pairs.
    TileBatch wide = base;
    wide.columns = columns;
    wide.b.clear();
    for (std::size_t tile = 0; tile < kRouteTiles; ++tile) {
      for (int column = 0; column < columns; ++column) {
        const auto from =
            base.b.begin() + static_cast<std::ptrdiff_t>((tile * 64 + column % 8) * 128);
        wide.b.insert(wide.b.end(), from, from + 128);
      }
    }
    multiply_batch(wide, Route::kShared);
    std::size_t changed = 0;
    for (std::size_t i = 0; i < wide.result.size(); ++i) {
      const std::size_t row = i / columns;
      changed += wide.result[i] != base.result[row * 64 + i % columns % 8] ? 1U : 0U;
    }
    std::printf("width %3d: %zu of %zu dots differ from width 64\n", columns, changed,
                wide.result.size());
  }
}

std::uint64_t compare_all(const ProbeOptions& chosen) {
  std::printf("%-5s %-4s %-9s %14s %10s %10s %8s %10s %10s %7s %7s\n", "width", "dim", "class",
              "dots", "mismatch", "NaN", "broken", "e/product", "e/norms", "e/S8", "e/S9");
  std::uint64_t mismatches = 0;
  std::uint64_t dots = 0;
  std::uint64_t first_tile = 0;
  for (const auto& [columns, dim] :
       {std::pair{8, 128}, std::pair{32, 128}, std::pair{64, 128}, std::pair{128, 128},
        std::pair{256, 128}, std::pair{64, 32}, std::pair{64, 64}}) {
    const std::uint64_t share = columns == 8 || dim < 128 ? 8 : 1;
    for (int c = 0; c < kInputClasses; ++c) {
      DifferentialOptions options;
      options.seed = chosen.seed;
      options.columns = columns;
      options.dim = dim;
      options.input = static_cast<InputClass>(c);
      options.first_tile = first_tile;
      options.tiles = chosen.dots / share / kInputClasses / (kTileRows * columns) + 1;
      first_tile += options.tiles;
      const DifferentialResult r = run_differential(options);
      std::printf("%5d %4d %-9s %14llu %10llu %10llu %8llu %10.3e %10.3e %7.4f %7.4f", columns, dim,
                  input_class_name(c), r.dots, r.mismatches, r.invalid, r.bound_violations,
                  r.error_over_product, r.error_over_norms, r.error_over_bound,
                  r.error_over_simple);
      if (r.mismatches != 0) {
        std::printf("  first: tile %llu row %llu column %llu", r.first_mismatch >> 32,
                    r.first_mismatch >> 16 & 0xffffU, r.first_mismatch & 0xffffU);
      }
      std::printf("\n");
      std::fflush(stdout);
      mismatches += r.mismatches;
      dots += r.dots;
    }
  }
  std::printf("total %llu dots, %llu mismatches\n", static_cast<unsigned long long>(dots),
              static_cast<unsigned long long>(mismatches));
  return mismatches;
}

void write_codes(std::FILE* out, const std::uint8_t* codes, int count) {
  for (int i = 0; i < count; ++i) std::fprintf(out, "%02x", codes[i]);
  std::fputc(' ', out);
}

void write_golden(const std::string& path, std::uint64_t seed) {
  const File file = open_for_writing(path);
  std::fprintf(file.get(), "# class steps start a b result; wgmma m64n64k32 f32.e4m3.e4m3\n");
  for (const int steps : {1, 2, 4}) {
    TileBatch batch = make_batch(seed, kInputClasses, 64, steps, steps == 1, kInputClasses);
    multiply_batch(batch, Route::kShared);
    const int dim = batch.dim();
    for (int tile = 0; tile < kInputClasses; ++tile) {
      for (int i = 0; i < (steps == 4 ? 12 : 8); ++i) {
        const int row = (i * 29 + 5) % 64;
        const int column = (i * 37 + 11) % 64;
        const std::size_t cell = (static_cast<std::size_t>(tile) * 64 + row) * 64 + column;
        std::fprintf(file.get(), "%s %d %08x ", input_class_name(tile), steps,
                     batch.start.empty() ? 0U : batch.start[cell]);
        write_codes(file.get(), batch.a.data() + (tile * 64 + row) * dim, dim);
        write_codes(file.get(), batch.b.data() + (tile * 64 + column) * dim, dim);
        std::fprintf(file.get(), "%08x\n", batch.result[cell]);
      }
    }
  }
}

/// Raw tiles for study elsewhere: per batch tiles, columns, steps, has start, then a, b, start,
/// result as little-endian bytes.
void write_dump(const std::string& path, std::uint64_t seed) {
  const File file = open_for_writing(path);
  const auto put = [&](const auto& values) {
    std::fwrite(values.data(), sizeof(values[0]), values.size(), file.get());
  };
  for (const Route route : {Route::kShared, Route::kMmaSync}) {
    for (const int steps : {1, 4}) {
      const int tiles = 7 * kInputClasses;
      TileBatch batch = make_batch(seed + steps, tiles, 64, steps, steps == 1, kInputClasses);
      multiply_batch(batch, route);
      put(std::vector<std::int32_t>{tiles, 64, steps, batch.start.empty() ? 0 : 1});
      put(batch.a);
      put(batch.b);
      put(batch.start);
      put(batch.result);
    }
  }
}

}  // namespace

std::uint64_t run_probe(const ProbeOptions& options) {
  print_device();
  if (!options.golden.empty()) write_golden(options.golden, options.seed);
  if (!options.dump.empty()) write_dump(options.dump, options.seed);
  print_designed_probes(stdout);
  compare_routes(options.seed);
  if (options.search) search_models(options.seed);
  return compare_all(options);
}

}  // namespace dosa::gpu
