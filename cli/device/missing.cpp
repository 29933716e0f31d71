// SPDX-License-Identifier: Apache-2.0
// Stands for the other sources of this folder in a build without CUDA.
#include "bench.hpp"
#include "device/device.hpp"
#include "doctor_system.hpp"
#include "failure.hpp"
#include "run.hpp"
#include "verify.hpp"

namespace dosa::cli {
namespace {

[[noreturn]] void refuse() {
  throw Failure("--backend", "cuda in a build without CUDA",
                "cpu, or a build configured with -D DOSA_CUDA=ON");
}

}  // namespace

int run_on_device(const RunArgs&) { refuse(); }
int verify_on_device(const VerifyArgs&) { refuse(); }
int bench_on_device(BenchArgs) { refuse(); }  // NOLINT(performance-unnecessary-value-param)
DeviceCheck check_device() { return {}; }

}  // namespace dosa::cli
