// SPDX-License-Identifier: Apache-2.0
// The commands with --backend cuda. In a build without CUDA each says that it is missing.
#pragma once

namespace dosa::cli {

struct RunArgs;
struct VerifyArgs;
struct BenchArgs;

/// Each is the whole command; returns the exit code.
/// Throws: Failure where there is no CUDA in this build, no driver or no device of sm_80 or later;
/// gpu::CudaError
int run_on_device(const RunArgs& args);
int verify_on_device(const VerifyArgs& args);
int bench_on_device(BenchArgs args);

}  // namespace dosa::cli
