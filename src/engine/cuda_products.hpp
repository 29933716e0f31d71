// SPDX-License-Identifier: Apache-2.0
// The kernels of one score model: everything that multiplies queries and keys.
#ifndef DOSA_ENGINE_CUDA_PRODUCTS_HPP
#define DOSA_ENGINE_CUDA_PRODUCTS_HPP

#include "dosa/dosa.h"
#include "plan/product_rounding.hpp"
#include "refine/dense_sm90.cuh"
#include "refine/refine_sm90.cuh"
#include "screen/screen_sm90.cuh"
#include "select/recover_sm90.cuh"

namespace dosa::engine {

/// Scores of all four agree bit for bit with each other; those of different models do not.
struct CudaProducts {
  cudaError_t (*dense)(const refine::DenseParams& params, int padded_heads, refine::Sink sink,
                       int multiprocessors, cudaStream_t stream);
  cudaError_t (*screen)(const screen::ScreenParams& params, int screen_rows, int multiprocessors,
                        cudaStream_t stream);
  cudaError_t (*bounds)(const screen::ScreenParams& params, int screen_rows, int multiprocessors,
                        cudaStream_t stream);
  cudaError_t (*refine)(const refine::RefineParams& params, int padded_heads, int multiprocessors,
                        cudaStream_t stream);
  cudaError_t (*recover)(const select::RecoverParams& params, int padded_heads, int multiprocessors,
                         cudaStream_t stream);
  plan::ProductRounding rounding;
  bool tensor_maps;  // whether the kernels read by tensor maps
};

/// The kernels of a model that the device can run.
const CudaProducts& cuda_products(int model);

}  // namespace dosa::engine

#endif  // DOSA_ENGINE_CUDA_PRODUCTS_HPP
