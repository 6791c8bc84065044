#!/usr/bin/env python3
"""Compiles every family of kernels to PTX with NVRTC, or checks that the PTX here is up to date.

Needs the wheel nvidia-cuda-nvrtc-cu12 and nothing else; `cargo xtask ptx` makes the environment.

A source that NVRTC gets is the family's file with each `#include "..."` line replaced by that
file's text at its first mention, and without `#pragma once`. The hash in the PTX is the 64-bit
FNV-1a of that text; a test of the crate compares it with today's sources.
"""

import argparse
import ctypes
import pathlib
import re
import sys

HERE = pathlib.Path(__file__).resolve().parent
PTX = HERE.parent / "ptx"
FAMILIES = ["logprob_entropy", "rl_loss", "segments", "importance", "loss_metrics"]
ARCHITECTURES = ["80", "90"]


def expand(name, seen):
    """The text of a source with its includes in place."""
    if name in seen:
        return ""
    seen.add(name)
    lines = []
    for line in (HERE / name).read_text().splitlines(keepends=True):
        include = re.match(r'#include "(.+)"\n', line)
        if include:
            lines.append(expand(include.group(1), seen))
        elif line != "#pragma once\n":
            lines.append(line)
    return "".join(lines)


def fnv1a(data):
    value = 0xCBF29CE484222325
    for byte in data:
        value = (value ^ byte) * 0x100000001B3 % 2**64
    return value


def load_nvrtc():
    """The NVRTC of the wheel in this Python environment."""
    for folder in map(pathlib.Path, sys.path):
        library = folder / "nvidia/cuda_nvrtc/lib/libnvrtc.so.12"
        if library.is_file():
            return ctypes.CDLL(str(library))
    sys.exit("the wheel nvidia-cuda-nvrtc-cu12 is not installed in this Python environment")


def compile_source(nvrtc, source, name, architecture):
    """PTX of a source, or the end of the program with the compiler's log."""
    program = ctypes.c_void_p()

    def call(function, *arguments):
        return getattr(nvrtc, "nvrtc" + function)(*arguments)

    def text(size_function, text_function):
        size = ctypes.c_size_t()
        call(size_function, program, ctypes.byref(size))
        buffer = ctypes.create_string_buffer(size.value)
        call(text_function, program, buffer)
        return buffer.value.decode()

    call("CreateProgram", ctypes.byref(program), source.encode(), name.encode(), 0, None, None)
    options = [f"--gpu-architecture=compute_{architecture}".encode(), b"--std=c++17"]
    failed = call("CompileProgram", program, len(options), (ctypes.c_char_p * 2)(*options))
    log = text("GetProgramLogSize", "GetProgramLog")
    if failed or log.strip():
        sys.exit(f"{name} for compute_{architecture}:\n{log}")
    ptx = text("GetPTXSize", "GetPTX")
    call("DestroyProgram", ctypes.byref(program))
    return ptx


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing, fail on a difference")
    check = parser.parse_args().check
    nvrtc = load_nvrtc()
    stale = []
    for family in FAMILIES:
        source = expand(f"{family}.cu", set())
        header = f"// source FNV-1a 64: {fnv1a(source.encode()):016x}\n"
        for architecture in ARCHITECTURES:
            ptx = header + compile_source(nvrtc, source, f"{family}.cu", architecture)
            path = PTX / f"{family}.sm_{architecture}.ptx"
            if check and (not path.is_file() or path.read_text() != ptx):
                stale.append(path.name)
            elif not check:
                path.write_text(ptx)
                print(f"{path.name}: {len(ptx)} bytes")
    if stale:
        sys.exit("not what the sources give: " + ", ".join(stale) + "; run `cargo xtask ptx`")


if __name__ == "__main__":
    main()
