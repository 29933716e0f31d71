// SPDX-License-Identifier: Apache-2.0
// One CTA of 128 threads makes one row's certificate: a thread per coordinate or per head.
#include "plan/plan_sm90.cuh"

#include "plan/envelope_sm90.cuh"
#include "plan/screen_layout_sm90.cuh"

namespace dosa::plan {
namespace {

constexpr int kMostJoint = 48;      // omitted positive heads for which pairs are worth their time
constexpr float kTiny = 0x1p-100f;  // aggregates below this are not subtracted

enum Role : int { kZero, kRetained, kProjected, kAggregated, kIgnored };

/// Loads the row's heads and weights, and their norms rounded up.
__device__ void load_row(const PlanParams& params, int row, RowWork& shared, float* q) {
  const int thread = static_cast<int>(threadIdx.x);
  const uint8_t* const codes = params.queries + row * params.query_bytes;
  bool valid = true;
  for (int head = 0; head < params.padded_heads; ++head) {
    const float value = decode(codes[head * kDim + thread]);
    valid = valid && value == value;
    q[head * kRowStride + thread] = value;
  }
  if (thread < params.padded_heads) {
    const float weight =
        thread < params.heads ? params.weights[row * params.weights_stride + thread] : 0.0f;
    valid = valid && fabsf(weight) < __int_as_float(0x7f800000);
    shared.weight[thread] = weight;
  }
  if (thread == 0) {
    shared.invalid = 0;
    shared.positives = 0;
    shared.retained = 0;
    shared.num_projected = 0;
    shared.num_aggregated = 0;
  }
  __syncthreads();
  if (!valid) atomicOr(&shared.invalid, 1);
  if (thread < params.padded_heads && shared.weight[thread] > 0.0f) atomicAdd(&shared.positives, 1);
  for (int base = 0; base < params.padded_heads; base += kThreads / 4) {
    const int head = base + thread / 4;
    float square = 0.0f;
    float weighted = 0.0f;
    float largest = 0x1p-6f;
#pragma unroll
    for (int step = 0; step < kDim / 32; ++step) {
      float sum = 0.0f;
      for (int i = 0; i < 32 / 4; ++i) {
        const float value = q[head * kRowStride + 32 * step + 4 * i + thread % 4];
        sum = __fmaf_ru(value, value, sum);
        largest = fmaxf(largest, fabsf(value));
      }
      square = __fadd_ru(square, sum);
      weighted = __fmaf_ru(step_weight(step), sum, weighted);
    }
#pragma unroll
    for (int other = 1; other < 4; other *= 2) {
      largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, other));
      square = __fadd_ru(square, __shfl_xor_sync(0xffffffffu, square, other));
      weighted = __fadd_ru(weighted, __shfl_xor_sync(0xffffffffu, weighted, other));
    }
    if (thread % 4 == 0) {
      shared.norm[head] = __fsqrt_ru(square);
      shared.power[head] = cut_to_power(largest);
      shared.error[head] = product_error(params.rounding, square, weighted, largest);
    }
  }
  __syncthreads();
}

/// How often a head is active on the row's hard keys; one half where none were seen.
__device__ float activity(const PlanParams& params, int row, int head) {
  const uint32_t* const counts =
      params.active + static_cast<int64_t>(row) * (params.padded_heads + 1);
  const uint32_t keys = counts[params.padded_heads];
  return keys == 0 ? 0.5f : static_cast<float>(counts[head]) / static_cast<float>(keys);
}

/// The retained set and the roles of the omitted heads (docs/math.md, Retained heads).
__device__ void choose_roles(const PlanParams& params, int row, RowWork& shared) {
  const int head = static_cast<int>(threadIdx.x);
  const int most = params.screen_rows - ScreenLayout::kAuxiliaryRows;
  const bool all_positive = shared.positives <= most;
  float active = 0.0f;
  if (head < params.padded_heads) {
    const float weight = shared.weight[head];
    const float strength = fabsf(weight) * shared.norm[head];
    active = activity(params, row, head);
    float priority = -1.0f;
    if (weight > 0.0f) priority = all_positive ? __int_as_float(0x7f800000) : strength;
    if (weight < 0.0f && all_positive) {
      priority = strength * (params.rules.strength ? 1.0f : fminf(active, 1.0f - active));
    }
    if (weight == 0.0f) priority = -2.0f;
    shared.priority[head] = priority;
  }
  __syncthreads();
  if (head < params.padded_heads) {
    const float own = shared.priority[head];
    int rank = 0;
    for (int other = 0; other < params.padded_heads; ++other) {
      const float theirs = shared.priority[other];
      if (theirs > own || (theirs == own && other < head)) ++rank;
    }
    const float weight = shared.weight[head];
    Role role = kZero;
    if (own >= 0.0f && rank < most) {
      role = kRetained;
      shared.slot_head[rank] = head;
      shared.folded[rank] = weight;
      atomicAdd(&shared.retained, 1);
    } else if (weight > 0.0f) {
      role = kProjected;
      shared.projected[atomicAdd(&shared.num_projected, 1)] = head;
    } else if (weight < 0.0f) {
      role = active >= params.rules.support ? kAggregated : kIgnored;
      if (role == kAggregated) shared.aggregated[atomicAdd(&shared.num_aggregated, 1)] = head;
    }
    shared.role[head] = role;
  }
  __syncthreads();
}

/// Dot product of two head rows by one warp, for choices only.
__device__ float warp_dot(const float* a, const float* b) {
  const int lane = static_cast<int>(threadIdx.x) & 31;
  float sum = 0.0f;
#pragma unroll
  for (int i = 0; i < kDim / 32; ++i) sum += a[lane + 32 * i] * b[lane + 32 * i];
#pragma unroll
  for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
  return sum;
}

/// The retained slot that leaves the smallest rest of `head`, and its coefficient beta.
__device__ int find_anchor(RowWork& shared, const float* q, int head, float& beta) {
  const int warp = static_cast<int>(threadIdx.x) / 32;
  float gain = 0.0f;
  float best_dot = 0.0f;
  int best = -1;
  for (int slot = warp; slot < shared.retained; slot += 4) {
    const int anchor = shared.slot_head[slot];
    const float norm = shared.norm[anchor];
    const float dot = warp_dot(q + head * kRowStride, q + anchor * kRowStride);
    if (norm > 0.0f && dot > 0.0f && dot / norm > gain) {
      gain = dot / norm;
      best_dot = dot;
      best = slot;
    }
  }
  __syncthreads();
  if (threadIdx.x % 32 == 0) {
    shared.best_gain[warp] = gain;
    shared.best_slot[warp] = best;
    shared.best_dot[warp] = best_dot;
  }
  __syncthreads();
  int chosen = 0;
  for (int other = 1; other < 4; ++other) {
    if (shared.best_gain[other] > shared.best_gain[chosen]) chosen = other;
  }
  const int slot = shared.best_slot[chosen];
  beta = 0.0f;
  if (slot >= 0) {
    const float norm = shared.norm[shared.slot_head[slot]];
    beta = shared.best_dot[chosen] / (norm * norm);
  }
  return slot;
}

/// Upper bound of sum_gh [u_g . u_h]+ over the rests stored in place of the projected heads.
__device__ float joint_squares(RowWork& shared, const float* q) {
  const int thread = static_cast<int>(threadIdx.x);
  const int lane = thread & 31;
  float total = 0.0f;
  const int count = shared.num_projected;
  for (int pair = thread / 32; pair < count * count; pair += 4) {
    const float* const a = q + shared.projected[pair / count] * kRowStride;
    const float* const b = q + shared.projected[pair % count] * kRowStride;
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < kDim / 32; ++i) {
      sum = __fmaf_ru(a[lane + 32 * i], b[lane + 32 * i], sum);
    }
    sum = warp_sum_up(sum);
    if (sum > 0.0f && lane == 0) total = __fadd_ru(total, sum);
  }
  return sum_up(shared, total);
}

/// E_P of the omitted positive heads and the envelope of their computed dot products; folds them
/// into their anchors (E3, E4, joint form). Rests w (q - beta q_j) replace the heads' rows.
__device__ float project(const PlanRules& rules, RowWork& shared, float* q) {
  const int d = static_cast<int>(threadIdx.x);
  float products = 0.0f;
  float triangle = 0.0f;
  float rounding = 0.0f;
  for (int i = 0; i < shared.num_projected; ++i) {
    const int head = shared.projected[i];
    const float weight = shared.weight[head];
    float beta = 0.0f;
    const int slot = rules.projection ? find_anchor(shared, q, head, beta) : -1;
    const int anchor = slot >= 0 ? shared.slot_head[slot] : head;
    const float value = q[head * kRowStride + d];
    const float along = slot >= 0 ? q[anchor * kRowStride + d] : 0.0f;
    const float low = __fmul_rd(weight, __fmaf_rd(-beta, along, value));
    const float high = __fmul_ru(weight, __fmaf_ru(-beta, along, value));
    const float largest = fmaxf(fabsf(low), fabsf(high));
    const float width = __fsub_ru(high, low);
    const float square = sum_up(shared, __fmul_ru(largest, largest));
    const float width_square = sum_up(shared, __fmul_ru(width, width));
    triangle = __fadd_ru(triangle, __fsqrt_ru(square));
    rounding = __fadd_ru(rounding, __fsqrt_ru(width_square));
    q[head * kRowStride + d] = high;
    products = __fmaf_ru(weight, shared.error[head], products);
    if (slot >= 0) {
      const float share = __fmul_ru(weight, beta);
      products = __fmaf_ru(share, shared.error[anchor], products);
      if (d == 0) shared.folded[slot] = __fadd_ru(shared.folded[slot], share);
    }
    __syncthreads();
  }
  float allowance = triangle;
  const bool worth = shared.num_projected > 1 && shared.num_projected <= kMostJoint;
  if (rules.joint && (worth || !rules.triangle)) {
    const float joint = __fadd_ru(__fsqrt_ru(joint_squares(shared, q)), rounding);
    allowance = rules.triangle ? fminf(allowance, joint) : joint;
  }
  return __fadd_ru(allowance, products);
}

/// A power of two s with |value| / s in [128, 256), or 0 for tiny values.
__device__ float row_scale(float largest) {
  if (!(largest > kTiny)) return 0.0f;
  return scalbnf(1.0f, ilogbf(largest) - 7);
}

/// An e4m3 row of the aggregate, times a power of two, and its products.
struct PeeledRow {
  float scale;
  float norm;
  float prefix[4];  // squares of the lengths of the first 32, 64, 96 and 128 coordinates
  float power;      // X
  float error;      // per n(k)
};

/// The next row: its code at this coordinate; [low, high] becomes what is left.
__device__ uint8_t peel(const PlanParams& params, RowWork& shared, float& low, float& high,
                        PeeledRow& row) {
  const float largest = max_all(shared, fmaxf(fabsf(low), fabsf(high)));
  row.scale = row_scale(largest);
  const float wanted = row.scale > 0.0f ? high / row.scale : 0.0f;
  const auto code = __nv_cvt_float_to_fp8(wanted, __NV_SATFINITE, __NV_E4M3);
  const float value = decode(code);
  low = __fmaf_rd(-row.scale, value, low);
  high = __fmaf_ru(-row.scale, value, high);
  const float square = sum_up(shared, __fmul_ru(value, value));
  float weighted = 0.0f;
#pragma unroll
  for (int step = 0; step < 4; ++step) {  // a warp holds the coordinates of a k-step
    const float sum = shared.partial[step];
    weighted = __fmaf_ru(step_weight(step), sum, weighted);
    row.prefix[step] = step == 0 ? sum : __fadd_rn(row.prefix[step - 1], sum);
  }
  row.norm = __fsqrt_ru(square);
  const float entry = fmaxf(0x1p-6f, max_all(shared, fabsf(value)));
  row.power = cut_to_power(entry);
  row.error = product_error(params.rounding, square, weighted, entry);
  return code;
}

/// The aggregate as two e4m3 rows with their coefficients (E5). Returns what must be taken off the
/// rows' sum, per n(k), so that its positive part stays below the sum of the aggregated heads'
/// (S16).
__device__ float aggregate(const PlanParams& params, RowWork& shared, const float* q,
                           float (&coefficients)[2], float& magnitude) {
  const int d = static_cast<int>(threadIdx.x);
  float low = 0.0f;
  float high = 0.0f;
  for (int head = 0; head < params.padded_heads; ++head) {
    if (shared.role[head] != kAggregated) continue;
    const float size = -shared.weight[head];
    low = __fmaf_rd(size, q[head * kRowStride + d], low);
    high = __fmaf_ru(size, q[head * kRowStride + d], high);
  }
  PeeledRow rows[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const uint8_t code = peel(params, shared, low, high, rows[i]);
    shared.aggregate[i][d] = code;
    coefficients[i] = rows[i].scale;
  }
  const float rest = fmaxf(fabsf(low), fabsf(high));
  const float error = __fsqrt_ru(sum_up(shared, __fmul_ru(rest, rest)));
  const float second = __fmul_ru(rows[1].scale, rows[1].norm);
  magnitude = __fmaf_ru(rows[0].scale, rows[0].norm, second);
  float taken = __fmaf_ru(rows[1].scale, rows[1].error, error);
  if (!params.rounding.sm90) {
    taken = __fmaf_ru(rows[0].scale, rows[0].error, taken);
    return __fadd_ru(taken, aggregated_singly(shared));
  }
  const float first = bridge_error(sm90_bridge_sum(rows[0].prefix), rows[0].norm, rows[0].power);
  taken = __fmaf_ru(rows[0].scale, first, taken);
  taken = __fmaf_ru(kShare, __fadd_ru(second, error), taken);
  for (float& coefficient : coefficients) coefficient *= 1.0f - 2.0f * kShare;  // exact
  return __fadd_ru(taken, aggregated_jointly(shared, q));
}

/// fp32 roundings of both chains: at most 64 of them, each 2^-24 of the sum of magnitudes. +Inf
/// where a chain might overflow on some key: then nothing is pruned.
__device__ float rounding_guard(const PlanParams& params, RowWork& shared, float allowance,
                                float magnitude) {
  constexpr float kRoundings = 0x1p-18f;
  constexpr float kMostSize = 0x1p63f;     // times |k| or |k| scale of prunable keys: below 2^127
  constexpr float kUnderflow = 0x1p-120f;  // per unit of |k| >= 2^-9: subnormal products
  const int thread = static_cast<int>(threadIdx.x);
  float own = 0.0f;
  if (thread < params.padded_heads) {
    own = __fmul_ru(fabsf(shared.weight[thread]), shared.norm[thread]);
  }
  if (thread < shared.retained) {
    own = __fmaf_ru(fabsf(shared.folded[thread]), shared.norm[shared.slot_head[thread]], own);
  }
  const float sizes = __fadd_ru(sum_up(shared, own), __fadd_ru(allowance, magnitude));
  if (!(sizes < kMostSize)) return __int_as_float(0x7f800000);
  return __fmaf_ru(kRoundings, sizes, kUnderflow);
}

__device__ void write_operand(const PlanParams& params, int row, const RowWork& shared,
                              bool usable) {
  using Layout = ScreenLayout;
  const int rows = params.screen_rows;
  const int thread = static_cast<int>(threadIdx.x);
  const int per_tile = Layout::tile_queries(rows);
  auto* const tile = reinterpret_cast<uint32_t*>(
      params.operand + static_cast<int64_t>(row / per_tile) * Layout::tile_columns(rows) * kDim);
  for (int i = thread / 32; i < rows; i += kThreads / 32) {
    uint32_t word = 0;
    if (usable && i < shared.retained) {
      const uint8_t* const codes =
          params.queries + row * params.query_bytes + shared.slot_head[i] * kDim;
      word = reinterpret_cast<const uint32_t*>(codes)[thread % 32];
    } else if (usable && i >= rows - Layout::kAuxiliaryRows) {
      word = reinterpret_cast<const uint32_t*>(
          shared.aggregate[i - (rows - Layout::kAuxiliaryRows)])[thread % 32];
    }
    tile[Layout::column(rows, row % per_tile, i) * (kDim / 4) + thread % 32] = word;
  }
}

__global__ void __launch_bounds__(kThreads)
    plan_sm90_kernel(const __grid_constant__ PlanParams params) {
  __shared__ RowWork shared;
  extern __shared__ __align__(16) float q[];  // (padded heads, 132)
  const int row = static_cast<int>(blockIdx.x);
  const int thread = static_cast<int>(threadIdx.x);
  if (params.chosen != nullptr && *params.chosen != params.screen_rows) return;
  if (params.orders[row / gpu::kBlockRows].split_from != 0) return;
  const int rows = params.screen_rows;
  const int stride = ScreenLayout::stride(rows);
  float* const out = params.coefficients + static_cast<int64_t>(row) * stride;
  bool usable = row < params.rows.rows;
  float allowance = 0.0f;
  float taken = 0.0f;
  float scales[2] = {0.0f, 0.0f};
  if (usable) {
    load_row(params, row, shared, q);
    usable = shared.invalid == 0;
    if (!usable && thread == 0) numeric::close_row(params.rows, row, 0);
  }
  if (usable) {
    choose_roles(params, row, shared);
    float magnitude = 0.0f;
    taken = aggregate(params, shared, q, scales, magnitude);
    allowance = project(params.rules, shared, q);
    magnitude = __fadd_ru(magnitude, taken);
    if (!ScreenLayout::takes_off(rows)) {
      allowance = __fadd_ru(allowance, taken);
      taken = 0.0f;
    }
    allowance = __fadd_ru(allowance, rounding_guard(params, shared, allowance, magnitude));
  }
  __syncthreads();
  for (int i = thread; i < stride; i += kThreads) {
    float value = 0.0f;
    if (usable) {
      if (i < shared.retained) value = shared.folded[i];
      if (i == rows - 2) value = scales[0];
      if (i == rows - 1) value = scales[1];
      if (i == rows) value = allowance;
      if (i == rows + 1) value = taken;
    }
    out[i] = value;
  }
  write_operand(params, row, shared, usable);
}

}  // namespace

cudaError_t launch_plan_sm90(const PlanParams& params, int blocks, cudaStream_t stream) {
  if (blocks == 0) return cudaSuccess;
  const int bytes = params.padded_heads * kRowStride * static_cast<int>(sizeof(float));
  const cudaError_t status =
      cudaFuncSetAttribute(plan_sm90_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  if (status != cudaSuccess) return status;
  constexpr int kRowsPerBlock = 64;
  plan_sm90_kernel<<<blocks * kRowsPerBlock, kThreads, bytes, stream>>>(params);
  return cudaGetLastError();
}

}  // namespace dosa::plan
