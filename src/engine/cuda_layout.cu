// SPDX-License-Identifier: Apache-2.0
#include "engine/cuda_layout.cuh"

#include <algorithm>

#include "engine/cuda_schedule.hpp"
#include "plan/screen_layout_sm90.cuh"
#include "screen/screen_sm90.cuh"

namespace dosa::engine {
namespace {

constexpr size_t kAlignment = 1024;  // tensor maps and 16-byte loads want no more
constexpr int kMostChunkRows = 8192;
constexpr int64_t kMostScoreBytes = int64_t{1} << 30;

/// Hands out aligned pieces of the workspace, or only counts them.
class Carver {
 public:
  explicit Carver(void* base) : base_(static_cast<uint8_t*>(base)) {}

  template <class T>
  T* take(int64_t count) {
    T* const piece = base_ == nullptr ? nullptr : reinterpret_cast<T*>(base_ + used_);
    const size_t bytes = static_cast<size_t>(count) * sizeof(T);
    used_ += (bytes + kAlignment - 1) / kAlignment * kAlignment;
    return piece;
  }

  [[nodiscard]] size_t used() const { return used_; }

 private:
  uint8_t* base_;
  size_t used_ = 0;
};

int pad_heads(int heads) { return heads <= 32 ? 32 : (heads <= 64 ? 64 : 128); }

int round_up(int64_t value, int step) { return static_cast<int>((value + step - 1) / step * step); }

/// R' for r retained heads: the narrowest kernel that holds them and the aggregate's rows. Without
/// a wish the device chooses between two or three.
void pick_widths(int retained, CudaShape& shape) {
  if (retained == 0) {
    const int narrowest = shape.padded_heads <= 32 ? 8 : 16;
    // The widest has won at long contexts only.
    const bool all = long_context(shape.num_keys, shape.padded_heads);
    shape.num_widths = all ? screen::kMostWidths : screen::kMostWidths - 1;
    shape.usual_width = 1;
    for (int i = 0; i < shape.num_widths; ++i) shape.widths[i] = narrowest + 8 * i;
    return;
  }
  const int wanted = retained + plan::ScreenLayout::kAuxiliaryRows;
  shape.num_widths = 1;
  shape.widths[0] = std::min((wanted + 7) / 8 * 8, 32);
}

CudaPath pick_path(const dosa_problem& problem, const dosa_options& options) {
  switch (options.mode) {
    case DOSA_MODE_BASE:
      return CudaPath::kBase;
    case DOSA_MODE_FULL:
      return CudaPath::kFull;
    case DOSA_MODE_AUTO: {
      const int heads = pad_heads(problem.num_heads);
      return long_context(problem.num_keys, heads) ||
                     worth_scouting(problem.num_queries, problem.num_keys, heads)
                 ? CudaPath::kScreen
                 : (worth_storing(problem.num_keys, heads) ? CudaPath::kBase : CudaPath::kFull);
    }
    default:
      return CudaPath::kScreen;
  }
}

void place_screen_buffers(const CudaShape& shape, int blocks, Carver& carver,
                          CudaBuffers& buffers) {
  const int64_t rows = static_cast<int64_t>(blocks) * gpu::kBlockRows;
  const int widest = shape.widths[shape.num_widths - 1];
  buffers.choice = carver.take<screen::Choice>(1);
  buffers.hard_floor = carver.take<float>(rows);
  buffers.active = carver.take<uint32_t>(rows * (shape.padded_heads + 1));
  buffers.screen_operand = carver.take<uint8_t>(rows * widest * 128);
  buffers.coefficients = carver.take<float>(rows * plan::ScreenLayout::stride(widest));
  buffers.masks =
      carver.take<uint32_t>(static_cast<int64_t>(blocks) * shape.mask_units * screen::kMaskWords);
  const int group_rows = 128 / shape.padded_heads;
  const int64_t groups = rows / group_rows;
  buffers.lists.counts = carver.take<int>(groups);
  buffers.lists.cursors = carver.take<int>(groups);
  buffers.lists.tile_first = carver.take<int>(groups + 1);
  buffers.lists.keys =
      carver.take<int>(screen::pool_keys(groups, shape.mask_units * gpu::kUnitKeys));
  buffers.lists.group_rows = group_rows;
  buffers.lists.total = &buffers.totals->refined;
}

}  // namespace

CudaShape make_cuda_shape(const dosa_problem& problem, const dosa_options& options) {
  CudaShape shape{};
  shape.path = pick_path(problem, options);
  shape.num_queries = problem.num_queries;
  shape.num_keys = static_cast<int>(problem.num_keys);
  shape.heads = problem.num_heads;
  shape.padded_heads = pad_heads(problem.num_heads);
  shape.head_dim = problem.head_dim;
  shape.topk = problem.topk;
  shape.units = static_cast<int>((problem.num_keys + gpu::kUnitKeys - 1) / gpu::kUnitKeys);
  const int64_t forced = int64_t{options.forced_first} + options.forced_last;
  const int first_round =
      kFirstUnits * gpu::kUnitKeys + static_cast<int>(std::min<int64_t>(forced, problem.topk));
  shape.record_capacity = round_up(std::max(first_round, 4 * problem.topk), 1024);
  pick_widths(options.heads, shape);
  shape.may_decline = options.mode == DOSA_MODE_AUTO;
  if (!worth_scouting(problem.num_queries, problem.num_keys, shape.padded_heads)) {
    shape.widths[0] = shape.widths[shape.usual_width];
    shape.num_widths = 1;
    shape.usual_width = 0;
    shape.may_decline = false;
  }
  shape.dense_units = dense_units(problem.topk, options.threshold == DOSA_THRESHOLD_FIXED);
  shape.mask_units = std::min(kMostScreenedUnits, std::max(shape.units, 1));
  shape.pack_queries = shape.heads != shape.padded_heads || shape.head_dim != 128 ||
                       problem.q_stride != static_cast<int64_t>(problem.num_heads) * 128;
  shape.score_stride = round_up(problem.num_keys, 4);
  int64_t rows = kMostChunkRows;
  if (shape.path == CudaPath::kBase) {
    rows = std::min(rows, kMostScoreBytes / (std::max<int64_t>(shape.score_stride, 1) * 4));
  }
  rows = std::max<int64_t>(rows / gpu::kBlockRows * gpu::kBlockRows, gpu::kBlockRows);
  rows =
      std::min<int64_t>(rows, round_up(std::max<int64_t>(problem.num_queries, 1), gpu::kBlockRows));
  shape.chunk_rows = static_cast<int>(rows);
  CudaBuffers unused{};
  while (shape.chunk_rows > gpu::kBlockRows &&
         place_cuda_buffers(shape, nullptr, unused) > options.workspace_limit) {
    shape.chunk_rows = round_up(shape.chunk_rows / 2, gpu::kBlockRows);
  }
  return shape;
}

size_t place_cuda_buffers(const CudaShape& shape, void* base, CudaBuffers& buffers) {
  Carver carver(base);
  const int blocks = shape.chunk_rows / gpu::kBlockRows;
  const int64_t rows = shape.chunk_rows;
  buffers.totals = carver.take<CudaTotals>(1);
  buffers.key_meta = carver.take<float2>(static_cast<int64_t>(shape.units) * gpu::kUnitKeys);
  buffers.lost_groups = carver.take<int>(rows * shape.padded_heads / 128 + 1);
  buffers.row_stats = carver.take<dosa_row_stats>(rows);
  buffers.row_traces = carver.take<select::RowTrace>(rows);
  buffers.rows.visible = carver.take<int2>(rows);
  buffers.rows.windows = carver.take<int2>(rows);
  buffers.rows.floor_record = carver.take<uint64_t>(rows);
  buffers.rows.floor_score = carver.take<float>(rows);
  buffers.rows.bound_floor = carver.take<float>(rows);
  buffers.rows.optimistic = carver.take<float>(rows);
  buffers.rows.counts = carver.take<uint32_t>(rows);
  buffers.rows.flags = carver.take<uint32_t>(rows);
  buffers.orders = carver.take<gpu::KeyOrder>(blocks);
  if (shape.pack_queries)
    buffers.packed_queries = carver.take<uint8_t>(rows * shape.padded_heads * 128);
  if (shape.path == CudaPath::kBase) {
    buffers.scores = carver.take<float>(rows * shape.score_stride);
    return carver.used();
  }
  buffers.rows.records = carver.take<uint64_t>(rows * shape.record_capacity);
  buffers.rows.capacity = shape.record_capacity;
  if (shape.path == CudaPath::kScreen) place_screen_buffers(shape, blocks, carver, buffers);
  return carver.used();
}

}  // namespace dosa::engine
