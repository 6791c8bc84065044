// Runs the project's CUDA kernels on the CPU: reads requests (protocol.hpp) until the input ends.
#include "device.hpp"

#include "importance.cu"
#include "logprob_entropy.cu"
#include "loss_metrics.cu"
#include "rl_loss.cu"
#include "segments.cu"

#include <map>
#include <tuple>
#include <type_traits>
#include <utility>

#include "protocol.hpp"

namespace {

using emulation::Argument;
using emulation::Request;

// Runs the kernel of a request with its arguments.
using Entry = std::function<void(const Request&)>;

template <class T> T argument_as(const Argument& argument) {
    if constexpr (std::is_pointer_v<T>) {
        return static_cast<T>(argument.as_pointer());
    } else {
        return argument.as_value<T>();
    }
}

template <class... T, size_t... I>
std::tuple<T...> arguments_of(const Request& request, std::index_sequence<I...>) {
    return {argument_as<T>(request.arguments[I])...};
}

template <class... T> Entry entry(void (*kernel)(T...)) {
    return [kernel](const Request& request) {
        if (request.arguments.size() != sizeof...(T)) {
            throw std::runtime_error("another number of arguments is needed");
        }
        const auto arguments = arguments_of<T...>(request, std::index_sequence_for<T...>());
        emulation::Scheduler scheduler(request.launch, [&] { std::apply(kernel, arguments); });
        scheduler.run();
    };
}

#define KERNEL(name) {#name, entry(name)}
#define KERNELS(name) KERNEL(name##_f32), KERNEL(name##_bf16), KERNEL(name##_f16)

const std::map<std::string, Entry> entries = {
    KERNELS(logprob_entropy),       KERNELS(rl_stats),           KERNELS(rl_backward),
    KERNELS(rl_fused),              KERNEL(token_loss),          KERNEL(segment_means),
    KERNEL(sequence_terms),         KERNEL(importance_weights),  KERNEL(loss_metrics_partial),
    KERNEL(loss_metrics_total),
};

void serve(const Request& request) {
    const auto found = entries.find(request.kernel);
    if (found == entries.end()) throw std::runtime_error("no kernel " + request.kernel);
    emulation::traffic = {};
    emulation::mutant = request.mutant;
    found->second(request);
}

}  // namespace

int main() {
    std::ios::sync_with_stdio(false);
    while (std::cin.peek() != std::char_traits<char>::eof()) {
        const Request request = Request::read();
        try {
            serve(request);
            emulation::answer_done(request);
        } catch (const std::exception& error) {
            emulation::answer_fault(error.what());
        }
        std::cout.flush();
    }
    return 0;
}
