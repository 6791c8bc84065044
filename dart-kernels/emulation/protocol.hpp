// Requests on standard input, answers on standard output. Integers are little-endian.
//
// request  u32 length of the name, name of the kernel
//          u32 grid, u32 threads, u32 cluster, u64 shared bytes, u32 seed, i32 mutant
//          u32 number of arguments, then each:
//            u8 0  null pointer
//            u8 1  value: u32 bytes, the bytes
//            u8 2  buffer: u64 bytes, u32 offset of the first byte from a multiple of 16, the bytes
//            u8 3  sparse buffer of zeros: u64 bytes, u32 number of stretches, each u64 from, u64
//                  bytes, the bytes; only stretches come back
// answer   u8 0  fault: u32 length, text
//          u8 1  done: u64 bytes of rows read, u64 written, then the bytes of every buffer in order
#pragma once
#include <sys/mman.h>

#include <iostream>

#include "scheduler.hpp"

namespace emulation {

constexpr uint64_t MAX_BYTES = uint64_t(1) << 30;   // of one request's part
constexpr uint64_t MAX_SPARSE = uint64_t(1) << 36;  // only what is touched takes memory

inline void read_bytes(void* to, size_t bytes) {
    std::cin.read(static_cast<char*>(to), std::streamsize(bytes));
    if (size_t(std::cin.gcount()) != bytes) throw std::runtime_error("the request ends early");
}

template <class T> T read_value() {
    T value;
    read_bytes(&value, sizeof value);
    return value;
}

template <class T> size_t read_length() {
    const T length = read_value<T>();
    if (length > MAX_BYTES) throw std::runtime_error("the request is too large");
    return size_t(length);
}

inline void write_bytes(const void* from, size_t bytes) {
    std::cout.write(static_cast<const char*>(from), std::streamsize(bytes));
}

template <class T> void write_value(T value) { write_bytes(&value, sizeof value); }

// Address space that takes memory only where it is touched.
class SparseMemory {
public:
    explicit SparseMemory(size_t bytes) : bytes_(bytes) {
        if (bytes > MAX_SPARSE) throw std::runtime_error("the sparse buffer is too large");
        const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
        data_ = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags, -1, 0);
        if (data_ == MAP_FAILED) throw std::runtime_error("no address space");
    }
    SparseMemory(const SparseMemory&) = delete;
    SparseMemory& operator=(const SparseMemory&) = delete;
    ~SparseMemory() { munmap(data_, bytes_); }
    unsigned char* data() { return static_cast<unsigned char*>(data_); }

private:
    size_t bytes_;
    void* data_;
};

// One argument of a kernel.
class Argument {
public:
    static Argument read() {
        Argument argument;
        switch (read_value<uint8_t>()) {
            case 0: break;
            case 1: argument.read_dense(read_length<uint32_t>(), 0); break;
            case 2: {
                const size_t bytes = read_length<uint64_t>();
                argument.is_buffer_ = true;
                argument.read_dense(bytes, read_value<uint32_t>() % 16);
                break;
            }
            case 3: argument.read_sparse(); break;
            default: throw std::runtime_error("no such kind of argument");
        }
        return argument;
    }

    template <class T> T as_value() const {
        if (is_buffer_ || stretches_.size() != 1 || stretches_[0].bytes != sizeof(T)) {
            throw std::runtime_error("a value has another size");
        }
        T value;
        std::memcpy(&value, data_, sizeof value);
        return value;
    }

    void* as_pointer() const {
        if (data_ != nullptr && !is_buffer_) throw std::runtime_error("a buffer is needed");
        return data_;
    }

    void write_back() const {
        if (!is_buffer_) return;
        for (const Stretch& stretch : stretches_) write_bytes(data_ + stretch.from, stretch.bytes);
    }

private:
    struct Stretch {
        size_t from, bytes;
    };

    // The last byte is the last of its allocation, for the sanitizer.
    void read_dense(size_t bytes, size_t offset) {
        memory_.reset(new unsigned char[offset + bytes]);  // a multiple of 16
        data_ = memory_.get() + offset;
        read_bytes(data_, bytes);
        stretches_.push_back({0, bytes});
    }

    void read_sparse() {
        const auto bytes = read_value<uint64_t>();
        sparse_ = std::make_unique<SparseMemory>(bytes);
        data_ = sparse_->data();
        is_buffer_ = true;
        const size_t count = read_length<uint32_t>();
        for (size_t i = 0; i < count; i++) {
            const auto from = read_value<uint64_t>();
            const size_t length = read_length<uint64_t>();
            if (from > bytes || length > bytes - from) throw std::runtime_error("a stretch is outside");
            read_bytes(data_ + from, length);
            stretches_.push_back({size_t(from), length});
        }
    }

    std::unique_ptr<unsigned char[]> memory_;
    std::unique_ptr<SparseMemory> sparse_;
    unsigned char* data_ = nullptr;
    std::vector<Stretch> stretches_;
    bool is_buffer_ = false;
};

struct Request {
    std::string kernel;
    Launch launch;
    int mutant = 0;
    std::vector<Argument> arguments;

    static Request read() {
        Request request;
        request.kernel.resize(read_length<uint32_t>());
        read_bytes(request.kernel.data(), request.kernel.size());
        request.launch.grid = read_value<uint32_t>();
        request.launch.threads = read_value<uint32_t>();
        request.launch.cluster = read_value<uint32_t>();
        request.launch.shared_bytes = read_length<uint64_t>();
        request.launch.seed = read_value<uint32_t>();
        request.mutant = read_value<int32_t>();
        const size_t count = read_length<uint32_t>();
        for (size_t i = 0; i < count; i++) request.arguments.push_back(Argument::read());
        return request;
    }
};

inline void answer_fault(const std::string& text) {
    write_value<uint8_t>(0);
    write_value(uint32_t(text.size()));
    write_bytes(text.data(), text.size());
}

inline void answer_done(const Request& request) {
    write_value<uint8_t>(1);
    write_value(traffic.read);
    write_value(traffic.written);
    for (const Argument& argument : request.arguments) argument.write_back();
}

}  // namespace emulation
