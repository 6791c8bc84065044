//! Edge rules: masked, broken and unread rows, labels outside, empty batches, huge logits.

use dart_kernels::{Token, row_stats};

use super::{
    accuracy::{call, check, stats_of},
    driver::Emulator,
    emulator,
    inputs::{Rows, Stats, Type, tokens},
    sanitized,
    training::{LOSS, Step, fused, near_rows, three_passes},
};

const NOT_FINITE: u32 = 1;
const ALL_MASKED: u32 = 2;
const BAD_LABEL: u32 = 4;
const TARGET_MASKED: u32 = 8;
const NOT_READ: u32 = 16;

fn all_nan(stats: &Stats) -> bool {
    stats.log_prob.is_nan() && stats.entropy.is_nan() && stats.complement.is_nan()
}

/// Both forms of one step; `check` sees statistics, gradient and outcomes of each.
fn every_form(
    emulator: &mut Emulator,
    rows: &Rows,
    change: impl Fn(&mut [Token]),
    check: impl Fn(&Step),
) {
    let mut tokens = tokens(&vec![0.0; rows.count], rows.vocab, 2);
    change(&mut tokens);
    let tokens = near_rows(rows, tokens);
    check(&three_passes(emulator, rows, &tokens, &LOSS));
    check(&fused(emulator, rows, &tokens, &LOSS));
}

fn masked_logits(emulator: &mut Emulator) {
    let inf = f64::NEG_INFINITY;
    for kind in Type::ALL {
        let mut rows = Rows::random(kind, 4, 6_001, 31).placed(1, 0);
        rows.row_mut(0)[..4_096].fill(inf);
        rows.row_mut(1).iter_mut().step_by(3).for_each(|x| *x = inf);
        rows.row_mut(2)[..6_000].fill(inf);
        rows.row_mut(3)[1..].fill(inf);
        let targets = [5_000, 1, 6_000, 0];
        let done = emulator.run(&call(&rows, &targets, &[1.25]));
        for (row, got) in stats_of(&done).iter().enumerate() {
            check(&rows, row, targets[row], 1.25, got);
        }
        let aim = |tokens: &mut [Token]| {
            for (token, target) in tokens.iter_mut().zip(targets) {
                token.target = target;
            }
        };
        every_form(emulator, &rows, aim, |step| {
            assert!(step.gradient.iter().all(|x| x.is_finite()));
            assert!(
                step.outcomes()
                    .iter()
                    .all(|outcome| outcome.loss.is_finite())
            );
        });
    }
}

/// Rows that have no loss: their gradient is 0, their loss NaN, their status says why.
fn broken_rows(emulator: &mut Emulator) {
    let inf = f64::INFINITY;
    for kind in Type::ALL {
        let mut rows = Rows::random(kind, 6, 300, 32).placed(2, 1);
        rows.row_mut(0)[299] = f64::NAN;
        rows.row_mut(1)[0] = inf;
        rows.row_mut(2)[7] = inf;
        rows.row_mut(3).fill(-inf);
        rows.row_mut(5)[9] = -inf;
        let targets = [4, 4, 7, 4, 300, 9];
        let status = [
            NOT_FINITE,
            NOT_FINITE,
            NOT_FINITE,
            ALL_MASKED,
            BAD_LABEL,
            TARGET_MASKED,
        ];
        let check = |stats: &[Stats]| {
            for (row, stats) in stats.iter().enumerate() {
                assert_eq!(stats.status, status[row], "row {row}: {stats:?}");
                assert!(all_nan(stats) || row == 5, "row {row}: {stats:?}");
            }
            assert_eq!(stats[3].log_sum_exp, -inf);
            assert_eq!((stats[5].log_prob, stats[5].complement), (-inf, 1.0));
            let want = row_stats(rows.row(5), 9, 1.0).entropy;
            assert!((stats[5].entropy - want).abs() < 5e-6 * want);
        };
        check(&stats_of(&emulator.run(&call(&rows, &targets, &[1.0]))));
        let aim = |tokens: &mut [Token]| {
            for (token, target) in tokens.iter_mut().zip(targets) {
                token.target = target;
                token.temperature = 1.0;
            }
        };
        every_form(emulator, &rows, aim, |step| {
            check(&step.stats());
            assert!(step.outcomes().iter().all(|outcome| outcome.loss.is_nan()));
            let mut gradients = step.gradient.chunks(rows.stride);
            assert!(gradients.all(|row| row[..300].iter().all(|x| *x == 0.0)));
        });
    }
}

/// Rows of weight 0 and ignored labels are not read, whatever stands in them.
fn unread_rows(emulator: &mut Emulator) {
    for kind in Type::ALL {
        let mut rows = Rows::random(kind, 2, 130, 33).placed(7, 2);
        rows.row_mut(0).fill(f64::NAN);
        let skip = |tokens: &mut [Token]| {
            tokens[0].weight = 0.0;
            tokens[0].target = u32::MAX;
        };
        every_form(emulator, &rows, skip, |step| {
            let (stats, outcome) = (step.stats()[0], step.outcomes()[0]);
            assert_eq!(
                (stats.status, stats.log_prob, stats.entropy),
                (NOT_READ, 0.0, 0.0)
            );
            assert_eq!((outcome.loss, outcome.by_log_prob), (0.0, 0.0));
            assert!(step.gradient[..130].iter().all(|x| *x == 0.0));
            assert!(step.read < 3 * rows.pass() / 2, "the row was read");
            assert_eq!(step.stats()[1].status, 0);
        });
        let done = emulator.run(&call(&rows, &[u32::MAX, 5], &[1.0]));
        assert_eq!(stats_of(&done)[0].status, NOT_READ);
        assert_eq!(done.read, (131 * kind.bytes()) as u64);
        check(&rows, 1, 5, 1.0, &stats_of(&done)[1]);
    }
}

fn empty_batch(emulator: &mut Emulator) {
    let rows = Rows::random(Type::F32, 0, 100, 1);
    let done = emulator.run(&call(&rows, &[], &[1.0]));
    assert_eq!((done.read, stats_of(&done).len()), (0, 0));
    every_form(
        emulator,
        &rows,
        |_| (),
        |step| assert!(step.gradient.is_empty()),
    );
}

/// Finite numbers come out wherever there is a finite logit and a finite target.
fn huge_logits(emulator: &mut Emulator) {
    for (kind, huge) in [(Type::F32, 1e38), (Type::Bf16, 1e38), (Type::F16, 6e4)] {
        let mut rows = Rows::random(kind, 3, 64, 34);
        for (row, (a, b)) in [(huge, -huge), (-huge, huge), (-huge, -huge)]
            .iter()
            .enumerate()
        {
            rows.row_mut(row)[3] = kind.round(*a);
            rows.row_mut(row)[50] = kind.round(*b);
        }
        let done = emulator.run(&call(&rows, &[3, 3, 3], &[1.0]));
        for stats in stats_of(&done) {
            assert!(
                stats.log_prob.is_finite() && stats.entropy.is_finite(),
                "{stats:?}"
            );
        }
        let aim = |tokens: &mut [Token]| {
            for token in tokens {
                (token.target, token.temperature) = (3, 1.0);
            }
        };
        every_form(emulator, &rows, aim, |step| {
            assert!(step.gradient.iter().all(|x| x.is_finite()));
        });
    }
}

fn every_rule(emulator: &mut Emulator) {
    masked_logits(emulator);
    broken_rows(emulator);
    unread_rows(emulator);
    empty_batch(emulator);
    huge_logits(emulator);
}

#[test]
fn edge_rules_hold() {
    if let Some(mut emulator) = emulator() {
        every_rule(&mut emulator);
    }
}

#[test]
fn edge_rules_are_clean_under_sanitizers() {
    if let Some(mut emulator) = sanitized() {
        every_rule(&mut emulator);
    }
}
