//! The kernels against their definition, against candle's composition, and against each other:
//! every instruction set on one thread, the fastest on all.
//!
//! Inputs rotate over more than the caches hold. After the measurements of criterion a table of
//! ratios is printed. `cargo xtask bench-peer` measures torch on the same numbers.

#![allow(clippy::print_stdout, reason = "its table is for a person")]

#[path = "kernels/rows.rs"]
mod rows;
#[path = "kernels/scalars.rs"]
mod scalars;
#[path = "kernels/summary.rs"]
mod summary;
mod support;

use std::time::Duration;

use criterion::Criterion;

fn main() {
    let mut criterion = Criterion::default()
        .sample_size(10)
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_millis(1500))
        .configure_from_args();
    rows::forward(&mut criterion);
    rows::training(&mut criterion);
    scalars::fused_linear(&mut criterion);
    scalars::token_loss(&mut criterion);
    scalars::steps(&mut criterion);
    criterion.final_summary();
    summary::print();
}
