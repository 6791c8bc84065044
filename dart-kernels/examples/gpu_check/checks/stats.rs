//! Statistics of rows: awkward vocabularies and alignments, near certainty, broken rows.

use dart_kernels::{
    Labels, RowStats, Shape, Temperature,
    cuda::{DeviceLogits, Gpu, GpuElement},
    row_stats,
};

use super::{
    Check, Extent, Result, inputs,
    rows::{Rows, exact, upload},
};

/// Bars for statistics: absolute for everything, relative near certainty.
pub(super) fn note_stats(
    check: &mut Check,
    got: &RowStats,
    want: &RowStats,
    at: impl Fn() -> String,
) {
    let scaled = |bar: f64, x: f64| bar * x.abs().max(1.0);
    let named = |what: &'static str| {
        let at = at();
        move || format!("{at}, {what}")
    };
    let log_prob = scaled(4e-6, want.log_prob);
    check.note(
        got.log_prob,
        want.log_prob,
        log_prob,
        named("log-probability"),
    );
    check.note(
        got.entropy,
        want.entropy,
        scaled(5e-6, want.entropy),
        named("entropy"),
    );
    let ulp = f64::from(f32::EPSILON) * want.log_sum_exp.abs();
    check.note(
        got.log_sum_exp,
        want.log_sum_exp,
        2.0 * ulp + 3e-6,
        named("log-sum-exp"),
    );
    if want.complement >= 1e-12 || want.complement.is_nan() {
        let relative = |x: f64| 5e-6 * x.abs();
        check.note(
            got.log_prob,
            want.log_prob,
            relative(want.log_prob),
            named("digits of log p"),
        );
        check.note(
            got.entropy,
            want.entropy,
            relative(want.entropy),
            named("digits of entropy"),
        );
        let digits = relative(want.complement);
        check.note(
            got.complement,
            want.complement,
            digits,
            named("digits of 1 - p"),
        );
    }
}

pub(super) fn statistics<T: GpuElement>(gpu: &Gpu, extent: Extent) -> Result<Check> {
    let mut check = Check::new(format!("log_prob_entropy {:?}", T::KIND));
    for (case, vocab) in extent.vocabularies.iter().copied().enumerate() {
        let mut rows = Rows::<T>::new(case as u64, extent.rows, vocab, case % 9);
        let targets: Vec<u32> = (0..extent.rows)
            .map(|row| inputs::target(50, row, vocab))
            .collect();
        // Every third row is nearly certain of its target.
        for row in (0..extent.rows).step_by(3) {
            let at = rows.start(row) + targets[row] as usize;
            rows.buffer[at] = T::from_f64(14.0 + 8.0 * (row % 4) as f64);
        }
        let temperatures: Vec<f64> = (0..extent.rows)
            .map(|row| [1.0, 0.7, 1.9][row % 3])
            .collect();
        let labels = Labels {
            temperature: Temperature::PerRow(&temperatures),
            ..Labels::new(&targets)
        };
        let range = rows.range();
        let device = upload(gpu, &rows.buffer)?;
        let logits = DeviceLogits::from_view(device.slice(range), rows.shape)?;
        let got = gpu.log_prob_entropy(&logits, &labels)?;
        for (row, got) in got.iter().enumerate() {
            let want = row_stats(
                &exact(rows.row(row)),
                targets[row] as usize,
                temperatures[row],
            );
            note_stats(&mut check, got, &want, || {
                format!("vocabulary {vocab}, row {row}")
            });
        }
    }
    Ok(check)
}

/// A row, its target, and what is special about it.
type Case<T> = (&'static str, Vec<T>, u32);

fn edge_cases<T: GpuElement>(vocab: usize) -> Vec<Case<T>> {
    let plain = inputs::logits::<T>(9, 0, vocab);
    // Rows with other logits at some indices.
    let masked = |at: &dyn Fn(usize) -> bool, x: f64| -> Vec<T> {
        let of = |i: usize| if at(i) { T::from_f64(x) } else { plain[i] };
        (0..vocab).map(of).collect()
    };
    let middle = vocab / 2;
    let shifted = plain
        .iter()
        .map(|x| T::from_f64(Into::<f64>::into(*x) + 300.0));
    vec![
        (
            "prefix masked",
            masked(&|i| i + 1 < vocab, f64::NEG_INFINITY),
            vocab as u32 - 1,
        ),
        (
            "third masked",
            masked(&|i| i % 3 == 0, f64::NEG_INFINITY),
            1,
        ),
        ("all masked", masked(&|_| true, f64::NEG_INFINITY), 1),
        ("NaN", masked(&|i| i == middle, f64::NAN), 0),
        ("NaN at the target", masked(&|i| i == 0, f64::NAN), 0),
        ("+inf", masked(&|i| i == middle, f64::INFINITY), 0),
        ("target masked", masked(&|i| i == 1, f64::NEG_INFINITY), 1),
        ("label outside", plain.clone(), vocab as u32),
        ("label far outside", plain.clone(), u32::MAX),
        ("shifted", shifted.collect(), 1),
    ]
}

/// Masked, broken, ignored rows.
pub(super) fn edges<T: GpuElement>(gpu: &Gpu) -> Result<Check> {
    let mut check = Check::new(format!("edge rows {:?}", T::KIND));
    for vocab in [3usize, 1000, 5003] {
        let cases = edge_cases::<T>(vocab);
        let all: Vec<T> = cases.iter().flat_map(|(_, row, _)| row.clone()).collect();
        let targets: Vec<u32> = cases.iter().map(|(_, _, target)| *target).collect();
        let device = upload(gpu, &all)?;
        let logits = DeviceLogits::new(&device, Shape::dense(cases.len(), vocab))?;
        let got = gpu.log_prob_entropy(&logits, &Labels::new(&targets))?;
        for ((name, row, target), got) in cases.iter().zip(&got) {
            let want = row_stats(&exact(row), *target as usize, 1.0);
            note_stats(&mut check, got, &want, || {
                format!("{name}, vocabulary {vocab}")
            });
        }
        let labels = Labels {
            ignore: Some(targets[0]),
            ..Labels::new(&targets)
        };
        let ignored = gpu.log_prob_entropy(&logits, &labels)?;
        check.note(ignored[0].log_prob, 0.0, 0.0, || "ignored label".into());
        check.note(ignored[1].log_prob, got[1].log_prob, 0.0, || {
            "label beside it".into()
        });
    }
    Ok(check)
}
