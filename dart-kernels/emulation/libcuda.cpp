// A driver and a cuBLAS of a GPU that is not there: the calls that the Rust side makes, with device
// memory in the memory of the process and kernels run by the scheduler. It lets tests run the whole
// way from a Rust call to its results, launch by launch, without a GPU.
//
// Built as a shared library and loaded under the names of the real ones. It is as strict as a
// driver: unknown kernels, too much shared memory, copies out of bounds are errors. Work is done
// when it is queued. DART_EMULATED_CAPABILITY is 80 or 90.
#include "device.hpp"

#include "importance.cu"
#include "logprob_entropy.cu"
#include "loss_metrics.cu"
#include "rl_loss.cu"
#include "segments.cu"

#include <cstdlib>
#include <map>
#include <tuple>
#include <utility>

namespace {

using emulation::Launch;

enum Status { SUCCESS = 0, INVALID_VALUE = 1, NOT_FOUND = 500, LAUNCH_FAILED = 719 };

// Shared memory of a CTA in bytes: without and with a request.
constexpr int SHARED_BYTES = 48 << 10, SHARED_BYTES_OPTIN = 232448;

// ---- kernels ----

using Entry = std::function<void(void**, const Launch&)>;

template <class... T, size_t... I>
std::tuple<T...> arguments_of(void** parameters, std::index_sequence<I...>) {
    return {*static_cast<T*>(parameters[I])...};
}

template <class... T> Entry entry(void (*kernel)(T...)) {
    return [kernel](void** parameters, const Launch& launch) {
        const auto arguments = arguments_of<T...>(parameters, std::index_sequence_for<T...>());
        emulation::Scheduler scheduler(launch, [&] { std::apply(kernel, arguments); });
        scheduler.run();
    };
}

#define KERNEL(name) {#name, entry(name)}
#define KERNELS(name) KERNEL(name##_f32), KERNEL(name##_bf16), KERNEL(name##_f16)

const std::map<std::string, Entry> entries = {
    KERNELS(logprob_entropy),      KERNELS(rl_stats),          KERNELS(rl_backward),
    KERNELS(rl_fused),             KERNEL(token_loss),         KERNEL(segment_means),
    KERNEL(sequence_terms),        KERNEL(importance_weights), KERNEL(loss_metrics_partial),
    KERNEL(loss_metrics_total),
};

struct Function {
    std::string name;
    int dynamic_shared = SHARED_BYTES;
};

struct Module {
    std::string code;
    std::map<std::string, Function> functions;
};

// ---- memory ----

std::map<char*, size_t> allocations;

// Whether so many bytes lie within one allocation.
bool is_allocated(u64 address, size_t bytes) {
    char* at = reinterpret_cast<char*>(address);
    auto after = allocations.upper_bound(at);
    if (after == allocations.begin()) return false;
    --after;
    return at + bytes <= after->first + after->second;
}

int capability() {
    const char* text = std::getenv("DART_EMULATED_CAPABILITY");
    return text == nullptr ? 90 : std::atoi(text);
}

// ---- products ----

enum DataType { FLOAT = 0, HALF = 2, BFLOAT = 14 };

float element(const void* matrix, int type, size_t at) {
    if (type == FLOAT) return static_cast<const float*>(matrix)[at];
    const u16 bits = static_cast<const u16*>(matrix)[at];
    return type == HALF ? half_to_float(bits) : __int_as_float(int(bits) << 16);
}

void set_element(void* matrix, int type, size_t at, float x) {
    if (type == FLOAT) {
        static_cast<float*>(matrix)[at] = x;
    } else {
        static_cast<u16*>(matrix)[at] =
            type == HALF ? emulation::float_to_half(x) : emulation::float_to_bfloat(x);
    }
}

struct Matrix {
    const void* data;
    int type;
    int stride;
    bool transposed;
    float at(int row, int column) const {
        const size_t r = size_t(transposed ? column : row), c = size_t(transposed ? row : column);
        return element(data, type, c * size_t(stride) + r);
    }
};

}  // namespace

extern "C" {

int cuInit(unsigned) { return SUCCESS; }
int cuGetErrorName(int, const char** name) { return *name = "emulated", SUCCESS; }
int cuGetErrorString(int, const char** text) { return *text = "of the emulated GPU", SUCCESS; }
int cuDeviceGetCount(int* count) { return *count = 1, SUCCESS; }
int cuDeviceGet(int* device, int) { return *device = 0, SUCCESS; }
int cuDeviceGetName(char* name, int length, int) {
    std::snprintf(name, size_t(length), "emulated GPU");
    return SUCCESS;
}
int cuDeviceGetAttribute(int* value, int attribute, int) {
    switch (attribute) {
        case 75: *value = capability() / 10; break;
        case 76: *value = capability() % 10; break;
        case 97: *value = SHARED_BYTES_OPTIN; break;
        case 115: *value = 1; break;  // memory pools
        default: return INVALID_VALUE;
    }
    return SUCCESS;
}
int cuDevicePrimaryCtxRetain(void** context, int) {
    static int primary;
    return *context = &primary, SUCCESS;
}
int cuDevicePrimaryCtxRelease_v2(int) { return SUCCESS; }
static void* current_context = nullptr;
int cuCtxGetCurrent(void** context) { return *context = current_context, SUCCESS; }
int cuCtxSetCurrent(void* context) { return current_context = context, SUCCESS; }
int cuCtxSynchronize() { return SUCCESS; }

int cuStreamCreate(void** stream, unsigned) { return *stream = new char, SUCCESS; }
int cuStreamDestroy_v2(void* stream) { return delete static_cast<char*>(stream), SUCCESS; }
int cuStreamSynchronize(void*) { return SUCCESS; }
int cuStreamWaitEvent(void*, void*, unsigned) { return SUCCESS; }
int cuEventCreate(void** event, unsigned) { return *event = new char, SUCCESS; }
int cuEventDestroy_v2(void* event) { return delete static_cast<char*>(event), SUCCESS; }
int cuEventRecord(void*, void*) { return SUCCESS; }
int cuEventSynchronize(void*) { return SUCCESS; }
int cuEventElapsedTime(float* milliseconds, void*, void*) { return *milliseconds = 1.0f, SUCCESS; }
int cuEventElapsedTime_v2(float* milliseconds, void*, void*) {
    return *milliseconds = 1.0f, SUCCESS;
}
int cuMemGetInfo_v2(size_t* free, size_t* total) { return *free = *total = 1u << 30, SUCCESS; }

int cuMemAllocAsync(u64* address, size_t bytes, void*) {
    if (bytes == 0) return INVALID_VALUE;
    char* memory = static_cast<char*>(std::malloc(bytes));
    std::memset(memory, emulation::POISON, bytes);
    allocations[memory] = bytes;
    return *address = reinterpret_cast<u64>(memory), SUCCESS;
}
int cuMemFreeAsync(u64 address, void*) {
    char* memory = reinterpret_cast<char*>(address);
    if (allocations.erase(memory) == 0) return INVALID_VALUE;
    return std::free(memory), SUCCESS;
}
int cuMemsetD8Async(u64 to, unsigned char value, size_t bytes, void*) {
    if (!is_allocated(to, bytes)) return INVALID_VALUE;
    return std::memset(reinterpret_cast<void*>(to), value, bytes), SUCCESS;
}
int cuMemcpyHtoDAsync_v2(u64 to, const void* from, size_t bytes, void*) {
    if (!is_allocated(to, bytes)) return INVALID_VALUE;
    return std::memcpy(reinterpret_cast<void*>(to), from, bytes), SUCCESS;
}
int cuMemcpyDtoHAsync_v2(void* to, u64 from, size_t bytes, void*) {
    if (!is_allocated(from, bytes)) return INVALID_VALUE;
    return std::memcpy(to, reinterpret_cast<const void*>(from), bytes), SUCCESS;
}
int cuMemcpyDtoDAsync_v2(u64 to, u64 from, size_t bytes, void*) {
    if (!is_allocated(from, bytes) || !is_allocated(to, bytes)) return INVALID_VALUE;
    return std::memcpy(reinterpret_cast<void*>(to), reinterpret_cast<void*>(from), bytes), SUCCESS;
}

int cuModuleLoadData(void** module, const void* code) {
    return *module = new Module{static_cast<const char*>(code), {}}, SUCCESS;
}
int cuModuleUnload(void* module) { return delete static_cast<Module*>(module), SUCCESS; }
int cuModuleGetFunction(void** function, void* module, const char* name) {
    Module& m = *static_cast<Module*>(module);
    const std::string entry_line = std::string(".entry ") + name + "(";
    const std::string target = ".target sm_" + std::to_string(capability());
    const bool found = m.code.find(entry_line) != std::string::npos &&
                       m.code.find(target) != std::string::npos && entries.count(name) != 0;
    if (!found) return NOT_FOUND;
    Function& f = m.functions[name];
    f.name = name;
    return *function = &f, SUCCESS;
}
int cuFuncGetAttribute(int* value, int attribute, void*) {
    if (attribute != 1) return INVALID_VALUE;  // static shared memory
    return *value = int(sizeof(Scratch)), SUCCESS;
}
int cuFuncSetAttribute(void* function, int attribute, int value) {
    const int most = SHARED_BYTES_OPTIN - int(sizeof(Scratch));
    if (attribute != 8 || value > most) return INVALID_VALUE;  // dynamic shared memory
    return static_cast<Function*>(function)->dynamic_shared = value, SUCCESS;
}

int cuLaunchKernel(void* function, unsigned grid, unsigned grid_y, unsigned grid_z,
                   unsigned threads, unsigned threads_y, unsigned threads_z, unsigned shared,
                   void*, void** parameters, void**) {
    const Function& f = *static_cast<Function*>(function);
    const bool flat = grid_y * grid_z * threads_y * threads_z == 1;
    const bool small = threads <= MAX_THREADS && int(shared) <= f.dynamic_shared;
    if (!flat || !small || grid == 0 || grid > 0x7fffffffu) return INVALID_VALUE;
    Launch launch;
    launch.grid = grid;
    launch.threads = threads;
    launch.cluster = f.name.rfind("rl_fused", 0) == 0 ? CLUSTER_SIZE : 1;
    launch.shared_bytes = shared;
    launch.seed = 1;
    try {
        entries.at(f.name)(parameters, launch);
    } catch (const std::exception& error) {
        std::fprintf(stderr, "%s: %s\n", f.name.c_str(), error.what());
        return LAUNCH_FAILED;
    }
    return SUCCESS;
}

int cublasCreate_v2(void** handle) { return *handle = new char, SUCCESS; }
int cublasDestroy_v2(void* handle) { return delete static_cast<char*>(handle), SUCCESS; }
int cublasSetStream_v2(void*, void*) { return SUCCESS; }

int cublasGemmEx(void*, int op_a, int op_b, int m, int n, int k, const void* alpha, const void* a,
                 int a_type, int lda, const void* b, int b_type, int ldb, const void* beta,
                 void* c, int c_type, int ldc, int, int) {
    const Matrix left{a, a_type, lda, op_a != 0}, right{b, b_type, ldb, op_b != 0};
    const float scale = *static_cast<const float*>(alpha), keep = *static_cast<const float*>(beta);
    for (int column = 0; column < n; column++) {
        for (int row = 0; row < m; row++) {
            float sum = 0.0f;
            for (int i = 0; i < k; i++) sum += left.at(row, i) * right.at(i, column);
            const size_t at = size_t(column) * size_t(ldc) + size_t(row);
            const float old = keep == 0.0f ? 0.0f : keep * element(c, c_type, at);
            set_element(c, c_type, at, scale * sum + old);
        }
    }
    return SUCCESS;
}

}  // extern "C"
