//! The kernels: PTX that is checked in, and with the feature `jit` their sources.

/// A family of kernels: one source, one module on the device.
#[derive(Clone, Copy, Debug)]
pub(super) struct Family {
    #[cfg(feature = "jit")]
    pub(super) name: &'static str,
    #[cfg(any(not(feature = "jit"), test))]
    sm_80: &'static str,
    #[cfg(any(not(feature = "jit"), test))]
    sm_90: &'static str,
    #[cfg(feature = "jit")]
    pub(super) source: &'static str,
}

macro_rules! family {
    ($name:literal) => {
        Family {
            #[cfg(feature = "jit")]
            name: $name,
            #[cfg(any(not(feature = "jit"), test))]
            sm_80: include_str!(concat!("../../ptx/", $name, ".sm_80.ptx")),
            #[cfg(any(not(feature = "jit"), test))]
            sm_90: include_str!(concat!("../../ptx/", $name, ".sm_90.ptx")),
            #[cfg(feature = "jit")]
            source: include_str!(concat!("../../cuda/", $name, ".cu")),
        }
    };
}

pub(super) const LOG_PROB_ENTROPY: Family = family!("logprob_entropy");
pub(super) const RL_LOSS: Family = family!("rl_loss");
pub(super) const SEGMENTS: Family = family!("segments");
pub(super) const IMPORTANCE: Family = family!("importance");
pub(super) const LOSS_METRICS: Family = family!("loss_metrics");

#[cfg(any(feature = "jit", test))]
pub(super) const FAMILIES: [Family; 5] = [
    LOG_PROB_ENTROPY,
    RL_LOSS,
    SEGMENTS,
    IMPORTANCE,
    LOSS_METRICS,
];

impl Family {
    /// PTX for a device of this compute capability (8.0 at least). PTX runs on every later device;
    /// that for sm_90 has the kernels that use clusters.
    #[cfg(any(not(feature = "jit"), test))]
    pub(super) fn ptx(&self, capability: (u32, u32)) -> &'static str {
        if capability >= (9, 0) {
            self.sm_90
        } else {
            self.sm_80
        }
    }
}

/// The source of a family as one text: each `#include "..."` replaced by that file at its first
/// mention. The PTX that is checked in is made from the same text.
#[cfg(feature = "jit")]
pub(super) fn expand(family: &Family) -> String {
    let mut text = String::new();
    expand_into(family.source, &mut Vec::new(), &mut text);
    text
}

#[cfg(feature = "jit")]
fn expand_into(source: &'static str, seen: &mut Vec<&'static str>, text: &mut String) {
    for line in source.lines() {
        let included = line
            .strip_prefix("#include \"")
            .and_then(|rest| rest.strip_suffix('"'));
        if let Some(name) = included {
            if !seen.contains(&name) {
                seen.push(name);
                expand_into(header(name), seen, text);
            }
        } else if line != "#pragma once" {
            text.push_str(line);
            text.push('\n');
        }
    }
}

#[cfg(feature = "jit")]
fn header(name: &str) -> &'static str {
    match name {
        "abi.cuh" => include_str!("../../cuda/abi.cuh"),
        "device.cuh" => include_str!("../../cuda/device.cuh"),
        "row.cuh" => include_str!("../../cuda/row.cuh"),
        "token_loss.cuh" => include_str!("../../cuda/token_loss.cuh"),
        // Only a new header in cuda/ can lead here, and the test of this file finds it.
        other => unreachable!("`{other}` is not among the headers of the kernels"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ptx_has_the_kernels_that_are_called() {
        for (family, kernels) in [
            (
                LOG_PROB_ENTROPY,
                vec!["logprob_entropy_f32", "logprob_entropy_bf16"],
            ),
            (
                RL_LOSS,
                vec!["token_loss", "rl_stats_f16", "rl_backward_bf16"],
            ),
            (SEGMENTS, vec!["segment_means", "sequence_terms"]),
            (IMPORTANCE, vec!["importance_weights"]),
            (
                LOSS_METRICS,
                vec!["loss_metrics_partial", "loss_metrics_total"],
            ),
        ] {
            for capability in [(8, 0), (8, 9), (9, 0), (12, 0)] {
                let ptx = family.ptx(capability);
                for kernel in &kernels {
                    let entry = format!(".visible .entry {kernel}(");
                    assert!(ptx.contains(&entry), "{kernel} for {capability:?}");
                }
            }
        }
        assert!(RL_LOSS.ptx((9, 0)).contains(".entry rl_fused_bf16("));
        assert!(!RL_LOSS.ptx((8, 9)).contains("rl_fused"));
        // A C string ends at the first zero byte.
        assert!(
            FAMILIES
                .iter()
                .all(|family| !family.ptx((9, 0)).contains('\0'))
        );
    }

    /// What is compiled at run time is what the PTX was made from: its first line has the hash.
    #[cfg(feature = "jit")]
    #[test]
    fn sources_are_those_of_the_ptx() {
        for family in FAMILIES {
            let step = |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
            let hash = expand(&family).bytes().fold(0xcbf2_9ce4_8422_2325, step);
            let line = format!("// source FNV-1a 64: {hash:016x}\n");
            assert!(family.ptx((9, 0)).starts_with(&line), "{}", family.name);
        }
    }
}
