// Runs a CUDA kernel on one CPU thread: a fiber per CUDA thread, one cluster of CTAs at a time.
//
// Made to find faults, not to be fast:
// - shared memory holds NaN patterns until it is written, and again once its CTA has exited;
// - the order of threads is shuffled by seed, and whole CTAs and single warps are held back at
//   random, so that nothing works by lock-step;
// - a barrier or warp collective that not all its threads reach ends in a report, not in a hang;
// - every access to rows is counted, so that "two passes" can be tested.
// It is no model of memory order within a barrier's interval, nor of speed.
#pragma once
#include <ucontext.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#define EMULATION_ASAN 1
#else
#define EMULATION_ASAN 0
#endif

namespace emulation {

constexpr unsigned WARP = 32;
constexpr size_t STACK_BYTES = 64 << 10;
constexpr unsigned char POISON = 0xff;  // every f32, f64 and bf16 of these bytes is NaN

enum class State { ready, block_barrier, warp_collective, cluster_barrier, done };

// Why a kernel could not run to its end.
struct Fault : std::runtime_error {
    using std::runtime_error::runtime_error;
};

struct Thread {
    ucontext_t context;
    State state = State::ready;
    unsigned index = 0;        // within the CTA
    unsigned block = 0;        // within the cluster
    unsigned mask = 0;         // lanes that the collective waited for names
    unsigned collectives = 0;  // so far: the parity picks the slots in use
    unsigned arrived = 0;      // phases of the cluster barrier arrived at
    int line = 0;              // where it waits
    void* fake_stack = nullptr;
};

struct Warp {
    uint64_t slots[2][WARP];
};

struct Block {
    std::vector<unsigned char> dynamic_shared;
    std::vector<unsigned char> static_shared;
    bool exited = false;
};

struct Launch {
    unsigned grid = 1, threads = WARP, cluster = 1;
    size_t shared_bytes = 0;
    uint32_t seed = 0;  // 0: threads in order, none held back
};

struct Traffic {
    uint64_t read = 0, written = 0;  // bytes of rows
};

class Scheduler;
inline Scheduler* running = nullptr;
inline Traffic traffic;
inline int mutant = 0;  // which fault a test has switched on; 0: none

class Scheduler {
public:
    Scheduler(const Launch& launch, std::function<void()> kernel)
        : launch_(launch), kernel_(std::move(kernel)), random_(launch.seed) {
        const size_t count = size_t(launch.threads) * launch.cluster;
        const bool whole = launch.threads % WARP == 0 && launch.grid % launch.cluster == 0;
        if (count == 0 || !whole) throw Fault("a launch of broken warps or clusters");
        stacks_.reset(new char[count * STACK_BYTES]);
        threads_.resize(count);
        order_.resize(count);
    }

    void run() {
        running = this;
        for (first_block_ = 0; first_block_ < launch_.grid; first_block_ += launch_.cluster) {
            run_cluster();
        }
        running = nullptr;
    }

    Thread& current() { return *current_; }
    unsigned block_index() const { return first_block_ + current_->block; }
    const Launch& launch() const { return launch_; }
    Warp& warp() { return warps_[current_->block * warps_per_block() + current_->index / WARP]; }
    Block& block(unsigned rank) { return blocks_[rank]; }

    // Gives up the CPU until whatever `state` waits for has happened.
    void wait(State state, int line, unsigned mask = 0) {
        Thread& thread = *current_;
        thread.state = state;
        thread.line = line;
        thread.mask = mask;
        leave(thread, false);
    }

    void cluster_arrive(int line) {
        Thread& thread = *current_;
        if (thread.arrived > phase_) fail("arrives twice at the cluster barrier", thread, line);
        thread.arrived = phase_ + 1;
    }

    void cluster_wait(int line) {
        Thread& thread = *current_;
        if (thread.arrived == phase_) return;  // the others were there already
        if (thread.arrived < phase_) fail("waits for the cluster without arriving", thread, line);
        wait(State::cluster_barrier, line);
    }

private:
    unsigned warps_per_block() const { return launch_.threads / WARP; }

    void start_cluster() {
        blocks_.assign(launch_.cluster, Block{});
        for (Block& block : blocks_) block.dynamic_shared.assign(launch_.shared_bytes, POISON);
        warps_.assign(size_t(warps_per_block()) * launch_.cluster, Warp{});
        phase_ = 0;
        for (size_t i = 0; i < threads_.size(); i++) {
            Thread& thread = threads_[i] = Thread{};
            order_[i] = unsigned(i);
            thread.index = unsigned(i) % launch_.threads;
            thread.block = unsigned(i) / launch_.threads;
            getcontext(&thread.context);
            thread.context.uc_stack.ss_sp = stacks_.get() + i * STACK_BYTES;
            thread.context.uc_stack.ss_size = STACK_BYTES;
            makecontext(&thread.context, &Scheduler::enter, 0);
        }
    }

    void run_cluster() {
        start_cluster();
        for (;;) {
            const bool ran = run_ready();
            poison_exited();
            const bool released = release();
            const bool alive = std::any_of(threads_.begin(), threads_.end(),
                                           [](const Thread& t) { return t.state != State::done; });
            if (!alive) return;
            if (!ran && !released) throw Fault(deadlock_report());
        }
    }

    // One turn for each thread that is ready and not held back.
    bool run_ready() {
        if (launch_.seed != 0) std::shuffle(order_.begin(), order_.end(), random_);
        const std::vector<bool> held = pick_held_back();
        bool ran = false;
        for (const unsigned i : order_) {
            Thread& thread = threads_[i];
            if (thread.state != State::ready || held[i / WARP]) continue;
            resume(thread);
            ran = true;
        }
        return ran;
    }

    // By warp. In a cluster only one CTA goes on, for long enough to leave while the others have
    // not begun; in it two warps of three. Never is everything held back.
    std::vector<bool> pick_held_back() {
        std::vector<bool> held(warps_.size(), false);
        if (launch_.seed == 0) return held;
        pick_favourite();
        const unsigned per_block = warps_per_block();
        bool goes_on = false;
        for (size_t w = 0; w < held.size(); w++) {
            held[w] = w / per_block != favourite_ || random_() % 3 == 0;
            goes_on |= !held[w] && warp_has_ready(w);
        }
        if (goes_on) return held;
        for (unsigned w = 0; w < per_block; w++) held[favourite_ * per_block + w] = false;
        return held;
    }

    // Now and then another CTA with something to do.
    void pick_favourite() {
        if (random_() % 64 != 0 && has_ready(favourite_)) return;
        favourite_ = unsigned(random_() % launch_.cluster);
        for (unsigned b = 0; b < launch_.cluster && !has_ready(favourite_); b++) {
            favourite_ = (favourite_ + 1) % launch_.cluster;
        }
    }

    // Warps of a CTA lie together; a CTA has whole warps.
    bool warp_has_ready(size_t w) const {
        const Thread* first = &threads_[w * WARP];
        return std::any_of(first, first + WARP,
                           [](const Thread& t) { return t.state == State::ready; });
    }

    bool has_ready(unsigned b) const {
        const Thread* first = &threads_[size_t(b) * launch_.threads];
        return std::any_of(first, first + launch_.threads,
                           [](const Thread& t) { return t.state == State::ready; });
    }

    void poison_exited() {
        for (unsigned b = 0; b < launch_.cluster; b++) {
            Block& block = blocks_[b];
            if (block.exited || !all_in_block(b, State::done)) continue;
            block.exited = true;
            std::fill(block.dynamic_shared.begin(), block.dynamic_shared.end(), POISON);
            std::fill(block.static_shared.begin(), block.static_shared.end(), POISON);
        }
    }

    // Wakes the threads of every barrier and collective that is complete.
    bool release() {
        bool any = release_cluster();
        for (unsigned b = 0; b < launch_.cluster; b++) {
            any |= release_block(b);
            for (unsigned w = 0; w < warps_per_block(); w++) any |= release_warp(b, w);
        }
        return any;
    }

    bool release_cluster() {
        bool some = false;
        for (const Thread& thread : threads_) {
            if (thread.state != State::done && thread.arrived <= phase_) return false;
            some |= thread.arrived > phase_;
        }
        if (!some) return false;
        phase_++;
        for (Thread& thread : threads_) {
            if (thread.state == State::cluster_barrier) thread.state = State::ready;
        }
        return true;
    }

    // Threads that have returned no longer count, as on the GPU.
    bool all_in_block(unsigned b, State state) const {
        const Thread* first = &threads_[size_t(b) * launch_.threads];
        return std::all_of(first, first + launch_.threads, [state](const Thread& t) {
            return t.state == State::done || t.state == state;
        });
    }

    bool release_block(unsigned b) {
        if (!all_in_block(b, State::block_barrier)) return false;
        bool any = false;
        for (unsigned t = 0; t < launch_.threads; t++) {
            Thread& thread = threads_[size_t(b) * launch_.threads + t];
            any |= thread.state == State::block_barrier;
            if (thread.state == State::block_barrier) thread.state = State::ready;
        }
        return any;
    }

    // A collective is complete once every lane it names waits at the same one.
    bool release_warp(unsigned b, unsigned w) {
        Thread* first = &threads_[size_t(b) * launch_.threads + w * WARP];
        const Thread* waiting = std::find_if(
            first, first + WARP, [](const Thread& t) { return t.state == State::warp_collective; });
        if (waiting == first + WARP) return false;
        const Thread& like = *waiting;
        for (unsigned lane = 0; lane < WARP; lane++) {
            if ((like.mask >> lane & 1) == 0) continue;
            const Thread* other = first + lane;
            if (other->state != State::warp_collective || other->mask != like.mask ||
                other->line != like.line || other->collectives != like.collectives) {
                return false;
            }
        }
        const unsigned mask = like.mask;
        for (unsigned lane = 0; lane < WARP; lane++) {
            if (mask >> lane & 1) first[lane].state = State::ready;
        }
        return true;
    }

    static const char* describe(State state) {
        switch (state) {
            case State::ready: return "ready";
            case State::block_barrier: return "at the barrier of its block";
            case State::warp_collective: return "in a warp collective";
            case State::cluster_barrier: return "at the barrier of its cluster";
            default: return "done";
        }
    }

    std::string deadlock_report() const {
        std::string report = "deadlock:";
        const Thread* before = nullptr;
        int shown = 0;
        for (const Thread& thread : threads_) {
            const bool same = before != nullptr && before->state == thread.state &&
                              before->line == thread.line && before->block == thread.block;
            before = &thread;
            if (same || shown++ >= 8) continue;
            char text[160];
            std::snprintf(text, sizeof text, " [block %u from thread %u: %s, line %d, mask %08x]",
                          first_block_ + thread.block, thread.index, describe(thread.state),
                          thread.line, thread.mask);
            report += text;
        }
        return report;
    }

    // Called on a fiber: exceptions may not cross contexts, so the scheduler throws it.
    void fail(const char* what, const Thread& thread, int line) {
        char text[160];
        std::snprintf(text, sizeof text, "block %u thread %u %s, line %d",
                      first_block_ + thread.block, thread.index, what, line);
        fault_ = text;
        leave(*current_, false);
    }

    static void enter() {
        Scheduler& self = *running;
#if EMULATION_ASAN
        __sanitizer_finish_switch_fiber(nullptr, &self.main_stack_, &self.main_stack_size_);
#endif
        self.kernel_();
        Thread& thread = *self.current_;
        thread.state = State::done;
        self.leave(thread, true);
    }

    void resume(Thread& thread) {
        current_ = &thread;
#if EMULATION_ASAN
        void* fake_stack = nullptr;
        __sanitizer_start_switch_fiber(&fake_stack, thread.context.uc_stack.ss_sp, STACK_BYTES);
#endif
        swapcontext(&main_, &thread.context);
#if EMULATION_ASAN
        __sanitizer_finish_switch_fiber(fake_stack, nullptr, nullptr);
        if (thread.state == State::done) {
            __asan_unpoison_memory_region(thread.context.uc_stack.ss_sp, STACK_BYTES);
        }
#endif
        if (!fault_.empty()) throw Fault(fault_);
    }

    void leave(Thread& thread, [[maybe_unused]] bool forever) {
#if EMULATION_ASAN
        __sanitizer_start_switch_fiber(forever ? nullptr : &thread.fake_stack, main_stack_,
                                       main_stack_size_);
#endif
        swapcontext(&thread.context, &main_);
#if EMULATION_ASAN
        __sanitizer_finish_switch_fiber(thread.fake_stack, &main_stack_, &main_stack_size_);
#endif
    }

    Launch launch_;
    std::function<void()> kernel_;
    std::mt19937 random_;
    std::unique_ptr<char[]> stacks_;
    std::vector<Thread> threads_;
    std::vector<unsigned> order_;
    std::vector<Block> blocks_;
    std::vector<Warp> warps_;
    unsigned first_block_ = 0;
    unsigned phase_ = 0;      // of the cluster barrier
    unsigned favourite_ = 0;  // the CTA of the cluster that goes on
    Thread* current_ = nullptr;
    std::string fault_;
    ucontext_t main_;
    const void* main_stack_ = nullptr;
    size_t main_stack_size_ = 0;
};

}  // namespace emulation
