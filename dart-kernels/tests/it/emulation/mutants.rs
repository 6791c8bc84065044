//! Faults that the emulation must find: each is patched into the CUDA sources, to be switched on
//! by number, and must end in wrong numbers, a deadlock report or a sanitizer's report.

use super::{
    accuracy,
    driver::{Build, Call, Emulator, Fault},
    inputs::{Rows, Type},
    training::{LOSS, fused_call, tokens_for},
};

/// A fault: what is replaced where, and by what. `M` stands for "this fault is on".
struct Mutant {
    name: &'static str,
    file: &'static str,
    from: &'static str,
    to: &'static str,
}

const MUTANTS: [Mutant; 12] = [
    Mutant {
        name: "no barrier between the warps of a block",
        file: "row.cuh",
        from: "    __syncthreads();\n    if (warp != 0) return scan;",
        to: "    if (!M) __syncthreads();\n    if (warp != 0) return scan;",
    },
    Mutant {
        name: "no barrier before the scans of a cluster are read",
        file: "rl_loss.cu",
        from: "    cluster_arrive();\n    cluster_wait();\n    if (threadIdx.x < 32) {",
        to: "    if (!M) cluster_arrive();\n    if (!M) cluster_wait();\n    if (threadIdx.x < 32) {",
    },
    Mutant {
        name: "a block leaves while others read its shared memory",
        file: "rl_loss.cu",
        from: "    // No CTA leaves while another may still read its shared memory.\n    cluster_wait();",
        to: "    if (!M) cluster_wait();",
    },
    Mutant {
        name: "no barrier before the gradient's coefficients are read",
        file: "rl_loss.cu",
        from: "    __syncthreads();\n    cluster_arrive();",
        to: "    if (!M) __syncthreads();\n    cluster_arrive();",
    },
    Mutant {
        name: "the unaligned head is taken for aligned",
        file: "row.cuh",
        from: "int head = past == 0 ?",
        to: "int head = M || past == 0 ?",
    },
    Mutant {
        name: "one vector too many",
        file: "row.cuh",
        from: "const int vectors = (length - head) / lanes<T>();",
        to: "const int vectors = (length - head) / lanes<T>() + (M ? 1 : 0);",
    },
    Mutant {
        name: "the tail is dropped",
        file: "row.cuh",
        from: "scan_elements(scan, row, split.tail, length, skip, k, copy);",
        to: "if (!M) scan_elements(scan, row, split.tail, length, skip, k, copy);",
    },
    Mutant {
        name: "the target is scanned too",
        file: "row.cuh",
        from: "if (first + j * step == skip.vector) hide",
        to: "if (!M && first + j * step == skip.vector) hide",
    },
    Mutant {
        name: "row offsets of 32 bits",
        file: "logprob_entropy.cu",
        from: "logits + row * row_stride, vocab",
        to: "logits + (M ? (i64)(int)(row * row_stride) : row * row_stride), vocab",
    },
    Mutant {
        name: "half a warp skips a shuffle",
        file: "row.cuh",
        from: "other.sum = __shfl_xor_sync(",
        to: "other.sum = M && threadIdx.x % 32 < 16 ? 0.0f : __shfl_xor_sync(",
    },
    Mutant {
        name: "the weighted sum is not centred again",
        file: "row.cuh",
        from: "fmaf(floored(fall), scan.sum, scan.weighted)",
        to: "(M ? scan.weighted : fmaf(floored(fall), scan.sum, scan.weighted))",
    },
    Mutant {
        name: "the slice in shared memory has another alignment than the row",
        file: "rl_loss.cu",
        from: "slice.kept = (T*)(shared + (u64)slice.row % 16);",
        to: "slice.kept = (T*)(shared + (M ? 0 : (u64)slice.row % 16));",
    },
];

/// The sources with every fault in place and switched off.
pub(super) fn patched(mut sources: Vec<(String, String)>) -> Vec<(String, String)> {
    for (index, mutant) in MUTANTS.iter().enumerate() {
        let file = sources.iter_mut().find(|(name, _)| name == mutant.file);
        let (_, text) = file.unwrap();
        let on = format!("(emulation::mutant == {})", index + 1);
        let places = text.matches(mutant.from).count();
        assert_eq!(
            places, 1,
            "{}: found {places} times in {}",
            mutant.name, mutant.file
        );
        // The letter stands alone in the replacements, unlike in names such as MAX_THREADS.
        let to: Vec<_> = mutant
            .to
            .split_inclusive(|c: char| !c.is_alphanumeric() && c != '_')
            .collect();
        let to: String = to
            .into_iter()
            .map(|word| match word.strip_prefix('M') {
                Some(rest) if rest.len() <= 1 => format!("{on}{rest}"),
                _ => word.to_owned(),
            })
            .collect();
        *text = text.replacen(mutant.from, &to, 1);
    }
    sources
}

/// What the fault-free sources give is what the test compares with.
fn calls() -> Vec<Call> {
    let rows = Rows::random(Type::Bf16, 2, 1_003, 3).placed(3, 0);
    let tokens = tokens_for(&rows, 4);
    let wide = Rows::random(Type::F32, 1, 37, 3).placed(1, 0);
    let far = Rows::random(Type::F32, 2, 64, 5).far_apart();
    let mut calls = vec![
        accuracy::call(&rows, &[40, 1_000], &[1.0]),
        accuracy::call(&wide, &[20], &[1.0]),
        accuracy::call(&far, &[3, 4], &[1.0]),
        fused_call(&rows, &tokens, &LOSS),
    ];
    for call in &mut calls {
        call.seed = 3;
    }
    calls
}

#[test]
fn every_fault_is_found() {
    let Some(mut emulator) = Emulator::open(Build::Mutants) else {
        return;
    };
    let calls = calls();
    let right: Vec<_> = calls.iter().map(|call| emulator.run(call)).collect();
    for (index, mutant) in MUTANTS.iter().enumerate() {
        let mut emulator = Emulator::open(Build::Mutants).unwrap();
        let found = calls.iter().zip(&right).any(|(call, right)| {
            let mut call = call.clone();
            call.mutant = index as i32 + 1;
            (1..=8).any(|seed| {
                call.seed = seed;
                match emulator.try_run(&call) {
                    Ok(done) => done != *right,
                    Err(_) => true,
                }
            })
        });
        assert!(found, "not found: {}", mutant.name);
    }
}

/// The report of a fault that must stop the kernel.
fn report(emulator: &mut Emulator, name: &str, call: &Call) -> String {
    let index = MUTANTS.iter().position(|mutant| mutant.name == name);
    let mut call = call.clone();
    call.mutant = index.unwrap() as i32 + 1;
    match emulator.try_run(&call) {
        Ok(_) => panic!("{name}: the kernel ran to its end"),
        Err(Fault(report)) => report,
    }
}

#[test]
fn faults_are_reported_as_what_they_are() {
    let Some(mut emulator) = Emulator::open(Build::Mutants) else {
        return;
    };
    let call = &calls()[0];
    let deadlock = report(&mut emulator, "half a warp skips a shuffle", call);
    assert!(deadlock.starts_with("deadlock:"), "{deadlock}");
    assert!(deadlock.contains("in a warp collective"), "{deadlock}");
    // A deadlock ends the launch, not the emulation.
    emulator.run(call);
    let beyond = report(&mut emulator, "one vector too many", call);
    assert!(beyond.contains("heap-buffer-overflow"), "{beyond}");
    let mut emulator = Emulator::open(Build::Mutants).unwrap();
    let unaligned = report(
        &mut emulator,
        "the unaligned head is taken for aligned",
        call,
    );
    assert!(unaligned.contains("misaligned address"), "{unaligned}");
}
