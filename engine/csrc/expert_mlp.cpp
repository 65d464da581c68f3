#include "expert_mlp.h"

#include <algorithm>
#include <memory>
#include <stdexcept>
#include <thread>
#include <vector>

#include "chunks.h"
#include "expert_groups.h"
#include "tile_panels.h"

namespace ktdesk {

namespace {

// Work that whoever needs it does together: each takes a part, and goes on when all are done. Nobody waits
// while it has one, so those that wait do not wait in a circle.
class SharedWork {
  public:
    template <class Task>
    void run(int64_t num_parts, const Task& task) {
        for (int64_t i = next_++; i < num_parts; i = next_++) {
            task(i);
            num_done_.fetch_add(1, std::memory_order_release);
        }
        for (int spins = 0; num_done_.load(std::memory_order_acquire) < num_parts; ++spins)
            if (spins > 1000) std::this_thread::yield();
    }

  private:
    std::atomic<int64_t> next_{0}, num_done_{0};
};

// How far a group is: `down` may start when nothing of gate and up is left.
struct alignas(64) Progress {
    std::atomic<int64_t> panels_left;
    std::atomic<bool> is_ready{false};
    SharedWork inputs, hidden;  // of a group on tiles, in the form that these want
};

void wait_for(const std::atomic<bool>& flag) {
    for (int spins = 0; !flag.load(std::memory_order_acquire); ++spins)
        if (spins > 1000) std::this_thread::yield();
}

// Two panels beside each other: a row of gate, then one of up.
constexpr int64_t kPair = 2 * kPanelRows;

// One batch through the experts. Phase 1 is gate, up and activation, panel by panel; the last of a group's
// panels is followed by quantizing its rows. Phase 2 is down.
class ExpertPass {
  public:
    ExpertPass(WorkerPool& pool, const ExpertMlp& mlp, const Routing& routing, const float* x, float* out);

    void run() {
        prepare_inputs();
        plan_chunks(hidden_chunks_, mlp_.gate.first.bytes_of_panel() + mlp_.up.first.bytes_of_panel(), 1);
        plan_chunks(out_chunks_, mlp_.down.first.bytes_of_panel(), kMaxTilePanels);
        run_chunks();
        add_partials();
    }

  private:
    void place_slots();
    void prepare_inputs();
    void plan_chunks(ChunkQueue& queue, int64_t panel_bytes, int64_t tile_step) const;
    void run_chunks();
    void compute_hidden(const Chunk& chunk, int thread);
    void hidden_on_vectors(const ExpertGroup& group, const Chunk& chunk, int thread);
    void hidden_on_tiles(const ExpertGroup& group, const Chunk& chunk, int thread);
    void store_tile_tokens();
    void store_tile_inputs(const ExpertGroup& group, const TileRows& rows, SharedWork& work) const;
    void store_tile_rows(const ExpertGroup& group, const float* const* vectors, const TileRows& rows,
                         SharedWork& work) const;
    void finish_hidden(const ExpertGroup& group, int64_t row, int64_t first, float* gate, float* up) const;
    void finish_phase_1(const Chunk& chunk);
    void compute_out(const Chunk& chunk, int thread);
    void out_on_vectors(const ExpertGroup& group, const Chunk& chunk, int thread);
    void out_on_tiles(const ExpertGroup& group, const Chunk& chunk, int thread);
    void scale_and_add(const ExpertMatrix& matrix, int64_t expert, float factor, int64_t first, int64_t count,
                       float* values) const;
    void add_partials();

    const uint8_t* next_start(int thread, const uint8_t* otherwise) const;
    const ExpertGroup& group_at(int64_t i) const { return all_.groups[static_cast<size_t>(i)]; }
    float weight_of(int64_t slot) const { return routing_.weights[pairs_[slot]]; }
    static TileRows rows_of(const ExpertGroup& group, const TileRows& all) {
        return {all.block(group.tile_begin), group.num_rows(), all.length};
    }

    WorkerPool& pool_;
    const RowKernels& kernels_;
    const ExpertMlp& mlp_;
    const Routing& routing_;
    const float* x_;
    float* out_;
    const int64_t hidden_size_, width_, num_pairs_;

    int64_t* pairs_;
    ExpertGroups all_;
    float *hidden_, *partials_;
    float** outputs_;                               // by slot, in partials
    Inputs inputs_;                                 // by slot
    Inputs activated_;                              // by slot
    TileRows tile_tokens_ = {};                     // one by one; without data: a token has one expert
    TileRows tile_inputs_ = {}, tile_hidden_ = {};  // of all groups on tiles
    int64_t unpack_floats_ = 0, tile_floats_ = 0;   // a thread's scratch: unpacked rows, then what tiles need

    ChunkQueue hidden_chunks_, out_chunks_;  // of phase 1, and of phase 2
    std::unique_ptr<Progress[]> progress_;
};

bool has_tiles(const WorkerPool& pool, const ExpertMlp& mlp) {
    return has_tiles(pool, mlp.gate.first) && has_tiles(pool, mlp.up.first) &&
           has_tiles(pool, mlp.down.first);
}

ExpertPass::ExpertPass(WorkerPool& pool, const ExpertMlp& mlp, const Routing& routing, const float* x,
                       float* out)
    : pool_(pool),
      kernels_(pool.kernels()),
      mlp_(mlp),
      routing_(routing),
      x_(x),
      out_(out),
      hidden_size_(mlp.down.first.num_rows),
      width_(mlp.down.first.length),
      num_pairs_(routing.num_tokens * routing.num_used),
      hidden_chunks_(pool, mlp.gate.first.num_panels(), num_pairs_),
      out_chunks_(pool, mlp.down.first.num_panels(), num_pairs_) {
    pairs_ = pool.buffer(WorkerPool::kPairs).reserve_array<int64_t>(num_pairs_);
    const int64_t min_tile_rows = has_tiles(pool, mlp) ? pool.tuning.min_tile_rows : INT64_MAX;
    all_ = group_by_expert(routing, mlp.num_experts, min_tile_rows, pairs_);
    hidden_ = pool.buffer(WorkerPool::kHidden).reserve_array<float>(num_pairs_ * width_);
    partials_ = pool.buffer(WorkerPool::kPartials).reserve_array<float>(num_pairs_ * hidden_size_);
    place_slots();
    progress_ = std::make_unique<Progress[]>(all_.groups.size());
    for (size_t i = 0; i < all_.groups.size(); ++i) progress_[i].panels_left = mlp.gate.first.num_panels();
}

void ExpertPass::place_slots() {
    const float** vectors = pool_.buffer(WorkerPool::kPointers).reserve_array<const float*>(3 * num_pairs_);
    const float** hidden_rows = vectors + num_pairs_;
    outputs_ = const_cast<float**>(vectors + 2 * num_pairs_);
    int32_t* token_of_slot = pool_.buffer(WorkerPool::kRowIds).reserve_array<int32_t>(2 * num_pairs_);
    int32_t* own_slot = token_of_slot + num_pairs_;
    for (int64_t slot = 0; slot < all_.num_slots; ++slot) {
        token_of_slot[slot] = static_cast<int32_t>(pairs_[slot] / routing_.num_used);
        own_slot[slot] = static_cast<int32_t>(slot);
        vectors[slot] = x_ + token_of_slot[slot] * hidden_size_;
        hidden_rows[slot] = hidden_ + slot * width_;
        outputs_[slot] = partials_ + pairs_[slot] * hidden_size_;
    }
    inputs_ = {vectors, {}, token_of_slot};
    activated_ = {hidden_rows, {}, own_slot};
}

// A token is quantized once, for all its experts; for tiles each expert has copies of its rows side by side.
void ExpertPass::prepare_inputs() {
    if (all_.any_on_vectors && (mlp_.gate.first.takes_bytes() || mlp_.up.first.takes_bytes()))
        inputs_.quantized =
            quantize_rows(pool_, WorkerPool::kQuantized, x_, routing_.num_tokens, hidden_size_);
    if (all_.any_on_vectors && mlp_.down.first.takes_bytes())
        activated_.quantized =
            reserve_quantized_rows(pool_.buffer(WorkerPool::kQuantizedHidden), num_pairs_, width_);
    unpack_floats_ = kPanelRows * std::max(hidden_size_, width_);
    if (all_.num_tile_rows > 0) {
        if (routing_.num_used > 1) store_tile_tokens();
        tile_inputs_ =
            reserve_tile_rows(pool_.buffer(WorkerPool::kTileInputs), all_.num_tile_rows, hidden_size_);
        tile_hidden_ = reserve_tile_rows(pool_.buffer(WorkerPool::kTileHidden), all_.num_tile_rows, width_);
        tile_floats_ =
            std::max({tile_scratch_floats(mlp_.gate.first, 2), tile_scratch_floats(mlp_.up.first, 2),
                      tile_scratch_floats(mlp_.down.first, kMaxTilePanels)});
        unpack_floats_ = std::max(unpack_floats_, tile_floats_);
    }
    // Behind the unpacked rows: a pair of panels' results for each row of a group on tiles, and their
    // addresses.
    pool_.reserve_scratch(unpack_floats_ + all_.most_rows * (kPair + 2));
}

void ExpertPass::store_tile_tokens() {
    tile_tokens_ = {nullptr, routing_.num_tokens, hidden_size_, 1};
    tile_tokens_.data = pool_.buffer(WorkerPool::kTileTokens)
                            .reserve_array<uint8_t>(routing_.num_tokens * tile_tokens_.block_bytes());
    pool_.run(routing_.num_tokens, [&](int64_t t, int) {
        tile_kernels(pool_)->store_row(x_ + t * hidden_size_, tile_tokens_, t);
    });
}

void ExpertPass::plan_chunks(ChunkQueue& queue, int64_t panel_bytes, int64_t tile_step) const {
    for (int64_t i = 0; i < static_cast<int64_t>(all_.groups.size()); ++i) {
        const int64_t num_rows = group_at(i).num_rows();
        queue.add(i, num_rows, group_at(i).is_on_tiles() ? tile_step : 1, longest_run(num_rows, panel_bytes));
    }
}

// A thread goes on to phase 2 when all chunks of phase 1 were taken, those of other nodes too, and only
// chunks of phase 2 wait: for those of phase 1, in which no thread ever waits. So some thread always goes on.
void ExpertPass::run_chunks() {
    const auto run = [&](bool with_phase_1, bool with_phase_2) {
        pool_.run(pool_.num_threads(), [&](int64_t, int thread) {
            const TileConfiguration configuration(all_.num_tile_rows > 0 ? tile_kernels(pool_) : nullptr);
            while (const Chunk* chunk = with_phase_1 ? hidden_chunks_.take(thread) : nullptr)
                compute_hidden(*chunk, thread);
            while (const Chunk* chunk = with_phase_2 ? out_chunks_.take(thread) : nullptr)
                compute_out(*chunk, thread);
        });
    };
    if (pool_.tuning.overlaps_phases) return run(true, true);
    run(true, false);
    run(false, true);
}

// Where a thread that ends its chunk now goes on to read, unless another is faster.
const uint8_t* ExpertPass::next_start(int thread, const uint8_t* otherwise) const {
    const Chunk* hidden = hidden_chunks_.peek(thread);
    const Chunk* chunk = hidden ? hidden : out_chunks_.peek(thread);
    if (!chunk) return otherwise;
    return (hidden ? mlp_.gate : mlp_.down).expert(group_at(chunk->group).expert).at(chunk->first);
}

void ExpertPass::compute_hidden(const Chunk& chunk, int thread) {
    const ExpertGroup& group = group_at(chunk.group);
    if (group.is_on_tiles())
        hidden_on_tiles(group, chunk, thread);
    else
        hidden_on_vectors(group, chunk, thread);
    finish_phase_1(chunk);
}

// Gate and up are read in turn, a panel each, so that the activation is made of what is in the first cache.
void ExpertPass::hidden_on_vectors(const ExpertGroup& group, const Chunk& chunk, int thread) {
    const Matrix gate = mlp_.gate.expert(group.expert), up = mlp_.up.expert(group.expert);
    alignas(64) float results[kTokenBlockUnpacked][kPair];
    float* rows[kTokenBlockUnpacked];
    for (int64_t i = 0; i < kTokenBlockUnpacked; ++i) rows[i] = results[i];
    const int64_t block = std::max(token_block(gate), token_block(up));
    const int64_t end = chunk.first + chunk.count;
    for (int64_t slot = group.begin; slot < group.end; slot += block) {
        const int64_t count = std::min(block, group.end - slot);
        const Inputs inputs = inputs_.from(slot);
        for (int64_t panel = chunk.first; panel < end; ++panel) {
            float* scratch = pool_.scratch(thread);
            const Ahead to_up = {gate.at(panel + 1), up.at(panel)};
            const Ahead to_gate = {up.at(panel + 1),
                                   panel + 1 < end ? gate.at(panel + 1) : next_start(thread, gate.at(panel))};
            multiply_panel_rows(kernels_, gate, panel, inputs, count, to_up, scratch, rows, 0);
            multiply_panel_rows(kernels_, up, panel, inputs, count, to_gate, scratch, rows, kPanelRows);
            for (int64_t i = 0; i < count; ++i) {
                float* gates = results[i];
                finish_hidden(group, slot + i, panel * kPanelRows, gates, gates + kPanelRows);
                std::copy_n(gates, gate.rows_of(panel), hidden_ + (slot + i) * width_ + panel * kPanelRows);
            }
        }
    }
}

// A block of rows at a time, so that each is written to by one thread.
void ExpertPass::store_tile_rows(const ExpertGroup& group, const float* const* vectors, const TileRows& rows,
                                 SharedWork& work) const {
    work.run(num_tile_blocks(rows.num_rows), [&](int64_t block) {
        const int64_t end = std::min((block + 1) * kTileRows, rows.num_rows);
        for (int64_t row = block * kTileRows; row < end; ++row)
            tile_kernels(pool_)->store_row(vectors[group.begin + row], rows, row);
    });
}

void ExpertPass::store_tile_inputs(const ExpertGroup& group, const TileRows& rows, SharedWork& work) const {
    if (!tile_tokens_.data) return store_tile_rows(group, inputs_.vectors, rows, work);
    work.run(num_tile_blocks(rows.num_rows), [&](int64_t block) {
        copy_tile_block(tile_tokens_, inputs_.row_ids + group.begin + block * kTileRows, rows, block);
    });
}

void ExpertPass::hidden_on_tiles(const ExpertGroup& group, const Chunk& chunk, int thread) {
    const TileRows inputs = rows_of(group, tile_inputs_);
    store_tile_inputs(group, inputs, progress_[chunk.group].inputs);
    const Matrix gate = mlp_.gate.expert(group.expert), up = mlp_.up.expert(group.expert);
    float* scratch = pool_.scratch(thread);
    float* results = scratch + unpack_floats_;
    float** rows = reinterpret_cast<float**>(results + all_.most_rows * kPair);
    for (int64_t i = 0; i < group.num_rows(); ++i) rows[i] = results + i * kPair;
    for (int64_t panel = chunk.first; panel < chunk.first + chunk.count; ++panel) {
        const TilePart parts[2] = {{&gate, panel, 0}, {&up, panel, kPanelRows}};
        multiply_tile_parts(pool_, parts, 2, inputs, rows, scratch);
        for (int64_t i = 0; i < group.num_rows(); ++i) {
            finish_hidden(group, group.begin + i, panel * kPanelRows, rows[i], rows[i] + kPanelRows);
            std::copy_n(rows[i], gate.rows_of(panel),
                        hidden_ + (group.begin + i) * width_ + panel * kPanelRows);
        }
    }
}

// A panel of gate and of up of one row becomes its activation, in place of gate.
void ExpertPass::finish_hidden(const ExpertGroup& group, int64_t slot, int64_t first, float* gate,
                               float* up) const {
    const int64_t count = std::min(kPanelRows, width_ - first);
    // What is multiplied into a token may as well be multiplied into its products.
    const float factor = mlp_.weighs_inputs ? weight_of(slot) : 1.0f;
    scale_and_add(mlp_.gate, group.expert, factor, first, count, gate);
    scale_and_add(mlp_.up, group.expert, factor, first, count, up);
    kernels_.activate(mlp_.activation, gate, up, gate, count);
}

void ExpertPass::scale_and_add(const ExpertMatrix& matrix, int64_t expert, float factor, int64_t first,
                               int64_t count, float* values) const {
    const float scale = matrix.scale ? factor * matrix.scale[expert] : factor;
    if (scale != 1.0f)
        for (int64_t i = 0; i < count; ++i) values[i] *= scale;
    if (!matrix.bias) return;
    const float* bias = matrix.bias + expert * matrix.first.num_rows + first;
    for (int64_t i = 0; i < count; ++i) values[i] += bias[i];
}

// The thread that ends a group's phase 1 quantizes its rows: acq_rel, so that it sees what others wrote.
void ExpertPass::finish_phase_1(const Chunk& chunk) {
    Progress& progress = progress_[chunk.group];
    if (progress.panels_left.fetch_sub(chunk.count, std::memory_order_acq_rel) != chunk.count) return;
    const ExpertGroup& group = group_at(chunk.group);
    if (!group.is_on_tiles() && mlp_.down.first.takes_bytes())
        for (int64_t slot = group.begin; slot < group.end; ++slot)
            kernels_.quantize_row(activated_.vectors[slot], activated_.quantized, slot);
    progress.is_ready.store(true, std::memory_order_release);
}

void ExpertPass::compute_out(const Chunk& chunk, int thread) {
    const ExpertGroup& group = group_at(chunk.group);
    wait_for(progress_[chunk.group].is_ready);
    if (group.is_on_tiles())
        out_on_tiles(group, chunk, thread);
    else
        out_on_vectors(group, chunk, thread);
    const int64_t first = chunk.first * kPanelRows;
    const int64_t count = std::min(chunk.count * kPanelRows, hidden_size_ - first);
    for (int64_t slot = group.begin; slot < group.end; ++slot)
        scale_and_add(mlp_.down, group.expert, 1.0f, first, count, outputs_[slot] + first);
}

void ExpertPass::out_on_vectors(const ExpertGroup& group, const Chunk& chunk, int thread) {
    const Matrix down = mlp_.down.expert(group.expert);
    const int64_t end = chunk.first + chunk.count, block = token_block(down);
    for (int64_t slot = group.begin; slot < group.end; slot += block)
        for (int64_t panel = chunk.first; panel < end; ++panel)
            multiply_panel_rows(kernels_, down, panel, activated_.from(slot),
                                std::min(block, group.end - slot),
                                {down.at(end), next_start(thread, down.at(panel))}, pool_.scratch(thread),
                                outputs_ + slot, panel * kPanelRows);
}

void ExpertPass::out_on_tiles(const ExpertGroup& group, const Chunk& chunk, int thread) {
    const Matrix down = mlp_.down.expert(group.expert);
    const TileRows hidden = rows_of(group, tile_hidden_);
    store_tile_rows(group, activated_.vectors, hidden, progress_[chunk.group].hidden);
    TilePart parts[kMaxTilePanels];
    for (int64_t done = 0; done < chunk.count; done += kMaxTilePanels) {
        const int64_t count = std::min(kMaxTilePanels, chunk.count - done);
        for (int64_t i = 0; i < count; ++i) {
            const int64_t panel = chunk.first + done + i;
            parts[i] = {&down, panel, panel * kPanelRows};
        }
        multiply_tile_parts(pool_, parts, count, hidden, outputs_ + group.begin, pool_.scratch(thread));
    }
}

// Few tokens are split by columns, so that all threads have some.
void ExpertPass::add_partials() {
    constexpr int64_t kColumns = 1024;
    const int64_t K = routing_.num_used, H = hidden_size_;
    const int64_t num_parts = routing_.num_tokens < pool_.num_threads() ? (H + kColumns - 1) / kColumns : 1;
    const int64_t size = (H + num_parts - 1) / num_parts;
    pool_.run(routing_.num_tokens * num_parts, [&](int64_t task, int) {
        const int64_t t = task / num_parts, first = task % num_parts * size;
        const int64_t count = std::min(size, H - first);
        float* sum = out_ + t * H + first;
        std::fill_n(sum, count, 0.0f);
        for (int64_t pair = t * K; pair < (t + 1) * K; ++pair) {
            if (!routing_.has_expert(pair)) continue;
            const float weight = mlp_.weighs_inputs ? 1.0f : routing_.weights[pair];
            kernels_.add_scaled(weight, partials_ + pair * H + first, sum, count);
        }
    });
}

}  // namespace

void check_experts(const Routing& routing, int64_t num_experts) {
    for (int64_t pair = 0; pair < routing.num_tokens * routing.num_used; ++pair)
        if (routing.ids[pair] < kNoExpert || routing.ids[pair] >= num_experts)
            throw std::invalid_argument("expert_mlp: an expert id is out of range");
}

void expert_mlp(WorkerPool& pool, const ExpertMlp& mlp, const Routing& routing, const float* x, float* out) {
    ExpertPass(pool, mlp, routing, x, out).run();
}

}  // namespace ktdesk
