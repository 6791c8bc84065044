//! The vector kernels against the definition in f64, on the exact values of the logits: every
//! instruction set of this machine, every storage type, awkward vocabularies and alignments.

use dart_kernels::{
    Cpu, Element, Isa, Labels, Logits, LogitsMut, RowGradient, RowStats, Sequences, Shape,
    Temperature, Token, TokenLoss, row_gradient, row_stats, token_loss,
};
use half::{bf16, f16};
use proptest::prelude::*;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

const VOCABULARIES: [usize; 12] = [
    1, 7, 255, 257, 1000, 1003, 32_000, 50_257, 128_256, 151_936, 152_064, 262_144,
];

fn generator(seed: u64) -> ChaCha8Rng {
    ChaCha8Rng::seed_from_u64(seed)
}

/// Nearly normal numbers of standard deviation 3.
fn logits<T: Element>(rng: &mut ChaCha8Rng, count: usize) -> Vec<T> {
    let mut normal = || (0..12).map(|_| rng.random::<f64>()).sum::<f64>() - 6.0;
    (0..count).map(|_| T::from_f64(3.0 * normal())).collect()
}

fn exact<T: Element>(row: &[T]) -> Vec<f64> {
    row.iter().map(|x| (*x).into()).collect()
}

fn engines() -> impl Iterator<Item = Cpu> {
    Isa::available().map(|isa| Cpu::new().with_isa(isa).unwrap().single_threaded())
}

/// Statistics of one row that starts `shift` elements into an aligned buffer.
fn stats<T: Element>(cpu: Cpu, row: &[T], target: u32, temperature: f64, shift: usize) -> RowStats {
    let targets = [target];
    let mut buffer = vec![T::ZERO; shift];
    buffer.extend_from_slice(row);
    let labels = Labels {
        temperature: Temperature::Shared(temperature),
        ..Labels::new(&targets)
    };
    let rows = Logits::new(&buffer[shift..], 1, row.len()).unwrap();
    cpu.log_prob_entropy(rows, &labels).unwrap()[0]
}

/// The bars of accuracy: absolute for everything, relative near certainty.
fn assert_accurate(got: &RowStats, true_: &RowStats, what: &str) {
    let within = |got: f64, want: f64, bar: f64| {
        assert!(
            (got - want).abs() <= bar,
            "{what}: {got} is not {want} ({got:?})"
        );
    };
    let scaled = |bar: f64, x: f64| bar * x.abs().max(1.0);
    within(got.log_prob, true_.log_prob, scaled(4e-6, true_.log_prob));
    within(got.entropy, true_.entropy, scaled(5e-6, true_.entropy));
    within(got.complement, true_.complement, 5e-6);
    let ulp = f64::from(f32::EPSILON) * true_.log_sum_exp.abs();
    within(got.log_sum_exp, true_.log_sum_exp, 2.0 * ulp + 3e-6);
    if true_.complement >= 1e-12 {
        for (got, want) in [
            (got.log_prob, true_.log_prob),
            (got.entropy, true_.entropy),
            (got.complement, true_.complement),
        ] {
            assert!(
                (got / want - 1.0).abs() <= 5e-6 || want == 0.0,
                "{what}: {got} is not {want}"
            );
        }
    }
}

fn accuracy<T: Element>(name: &str) {
    let mut rng = generator(7);
    for vocab in VOCABULARIES {
        let row = logits::<T>(&mut rng, vocab);
        for (case, temperature) in [(0usize, 1.0), (1, 0.7), (3, 1.9)] {
            let target = rng.random_range(0..vocab as u32);
            let want = row_stats(&exact(&row), target as usize, temperature);
            for cpu in engines() {
                let got = stats(cpu, &row, target, temperature, case);
                assert_accurate(&got, &want, &format!("{name} {vocab} {:?}", cpu.isa()));
            }
        }
    }
}

#[test]
fn rows_of_f32() {
    accuracy::<f32>("f32");
}

#[test]
fn rows_of_bf16() {
    accuracy::<bf16>("bf16");
}

#[test]
fn rows_of_f16() {
    accuracy::<f16>("f16");
}

#[test]
fn digits_survive_near_certainty() {
    let mut rng = generator(8);
    for vocab in [1003, 32_000, 152_064] {
        for lead in [10.0, 20.0, 25.0, 30.0, 38.0] {
            let mut row = logits::<bf16>(&mut rng, vocab);
            let target = vocab / 3;
            row[target] = bf16::from_f64(lead);
            let want = row_stats(&exact(&row), target, 1.0);
            for cpu in engines() {
                let got = stats(cpu, &row, target as u32, 1.0, 1);
                assert_accurate(&got, &want, &format!("{vocab} {lead} {:?}", cpu.isa()));
            }
        }
    }
}

#[test]
fn shifted_and_masked_rows() {
    let mut rng = generator(9);
    let vocab = 50_257;
    let plain = logits::<f32>(&mut rng, vocab);
    let masked = |keep: &dyn Fn(usize) -> bool| -> Vec<f32> {
        let of = |(i, x): (usize, &f32)| if keep(i) { *x } else { f32::NEG_INFINITY };
        plain.iter().enumerate().map(of).collect()
    };
    let rows = [
        plain.iter().map(|x| x + 300.0).collect(),
        plain.iter().map(|x| x - 1e4).collect(),
        masked(&|i| i >= 4096),
        masked(&|i| i % 3 != 0),
        masked(&|i| i == 5000),
        // Ascending: the top rises at every step.
        (0..vocab).map(|i| i as f32 * 1e-3).collect(),
    ];
    for (case, row) in rows.iter().enumerate() {
        let want = row_stats(&exact(row), 5000, 1.0);
        for cpu in engines() {
            let got = stats(cpu, row, 5000, 1.0, 0);
            assert_accurate(&got, &want, &format!("case {case} {:?}", cpu.isa()));
        }
    }
}

#[test]
fn broken_rows_show() {
    let inf = f32::INFINITY;
    for cpu in engines() {
        for length in [3usize, 40, 300] {
            let row_with = |at: usize, x: f32| {
                let mut row = vec![0.5f32; length];
                row[at] = x;
                row
            };
            for at in [0, 1, length - 1] {
                for x in [f32::NAN, inf] {
                    let broken = stats(cpu, &row_with(at, x), 1, 1.0, 0);
                    assert!(
                        broken.log_prob.is_nan() && broken.entropy.is_nan(),
                        "{at} {x}"
                    );
                }
            }
            let empty = stats(cpu, &vec![-inf; length], 1, 1.0, 0);
            assert!(empty.log_prob.is_nan() && empty.log_sum_exp == f64::NEG_INFINITY);
            let outside = stats(cpu, &row_with(0, 0.0), length as u32, 1.0, 0);
            assert!(outside.log_prob.is_nan() && outside.log_sum_exp.is_nan());
            let hidden = stats(cpu, &row_with(1, -inf), 1, 1.0, 0);
            assert_eq!(hidden.log_prob, f64::NEG_INFINITY);
            assert!((hidden.entropy - (length as f64 - 1.0).ln()).abs() < 1e-5);
        }
        let alone = stats(cpu, &[-inf, 3.0, -inf], 1, 1.0, 0);
        assert_eq!(
            (alone.log_prob, alone.entropy, alone.complement),
            (0.0, 0.0, 0.0)
        );
    }
}

#[test]
fn ignored_rows_are_not_read_and_gaps_neither() {
    let nan = f32::NAN;
    let data = [0.0, 0.0, nan, nan, nan, nan, 1.0, 1.0];
    let shape = Shape {
        rows: 3,
        vocab: 2,
        row_stride: 3,
    };
    let labels = Labels {
        ignore: Some(9),
        temperature: Temperature::PerRow(&[1.0, 1.0, 0.5]),
        ..Labels::new(&[0, 9, 1])
    };
    for cpu in engines() {
        let rows = Logits::with_shape(&data, shape).unwrap();
        let stats = cpu.log_prob_entropy(rows, &labels).unwrap();
        for index in [0, 2] {
            assert!((stats[index].entropy - 2f64.ln()).abs() < 1e-6);
        }
        assert_eq!((stats[1].log_prob, stats[1].log_sum_exp), (0.0, 0.0));
        let none = Logits::<f32>::new(&[], 0, 5).unwrap();
        assert!(
            cpu.log_prob_entropy(none, &Labels::new(&[]))
                .unwrap()
                .is_empty()
        );
    }
}

/// Relative Euclidean distance.
fn distance(got: &[f64], want: &[f64]) -> f64 {
    let square = |x: f64| x * x;
    let apart: f64 = got.iter().zip(want).map(|(a, b)| square(a - b)).sum();
    let norm: f64 = want.iter().map(|b| square(*b)).sum();
    (apart / norm.max(f64::MIN_POSITIVE)).sqrt()
}

fn token(target: u32, temperature: f64) -> Token {
    Token {
        target,
        temperature,
        weight: 0.25,
        advantage: -1.3,
        old: Some(-4.0),
        rollout: Some(-4.2),
        reference: Some(-3.8),
    }
}

fn gradients<T: Element>(name: &str, bar: impl Fn(f64) -> f64) {
    let loss = TokenLoss {
        entropy_bonus: 0.02,
        ..TokenLoss::PAPER
    };
    let mut rng = generator(10);
    for vocab in VOCABULARIES.into_iter().skip(1) {
        let row = logits::<T>(&mut rng, vocab);
        let token = token(rng.random_range(0..vocab as u32), 0.8);
        let target = token.target as usize;
        let row64 = exact(&row);
        let want = row_stats(&row64, target, token.temperature);
        let outcome = token_loss(&loss, &token, want.log_prob, want.entropy);
        let by = RowGradient {
            log_prob: outcome.by_log_prob,
            entropy: outcome.by_entropy,
        };
        let mut true_gradient = vec![0.0; vocab];
        row_gradient(
            &row64,
            (target, token.temperature),
            &want,
            by,
            &mut true_gradient,
        );
        let rounded: Vec<f64> = true_gradient
            .iter()
            .map(|g| T::from_f64(*g).into())
            .collect();
        let bar = bar(distance(&rounded, &true_gradient));
        for cpu in engines() {
            let mut got = row.clone();
            let rows = LogitsMut::new(&mut got, 1, vocab).unwrap();
            let single = Sequences::single_tokens(1);
            let result = cpu
                .rl_loss_in_place(rows, &[token], &single, &loss)
                .unwrap();
            let got = exact(&got);
            let what = format!("{name} {vocab} {:?}", cpu.isa());
            let far = distance(&got, &true_gradient);
            assert!(far <= bar, "{what}: {far} is above {bar}");
            assert!((result.loss - outcome.loss).abs() <= 4e-6 * outcome.loss.abs().max(1.0));
            let scale = by.log_prob.abs() + by.entropy.abs();
            let ulp = rounded[target].abs() * (distance(&rounded, &true_gradient) + 1e-6) * 4.0;
            assert!(
                (got[target] - rounded[target]).abs() <= ulp + 1e-30,
                "{what}: target"
            );
            if name == "f32" {
                let sum: f64 = got.iter().sum();
                assert!(sum.abs() <= 1e-5 * scale, "{what}: sum {sum}");
            }
        }
    }
}

#[test]
fn gradients_of_f32() {
    gradients::<f32>("f32", |_| 2e-6);
}

#[test]
fn gradients_of_bf16() {
    gradients::<bf16>("bf16", |rounding| 1.02 * rounding);
}

#[test]
fn gradients_of_f16() {
    // Most of a large row lies below the normal numbers of f16, where rounding is all there is.
    gradients::<f16>("f16", |rounding| 1.02 * rounding + 1e-5);
}

#[test]
fn gradients_of_f64() {
    gradients::<f64>("f64", |_| 1e-13);
}

#[test]
fn a_shift_costs_the_gradient_no_digits() {
    let mut rng = generator(11);
    let base = logits::<f32>(&mut rng, 4099);
    // Sums that f32 holds exactly, so that both rows have the same distribution.
    let base: Vec<f32> = base.iter().map(|x| (x * 64.0).round() / 64.0).collect();
    let single = Sequences::single_tokens(1);
    for cpu in engines() {
        let gradient = |shift: f32| {
            let mut row: Vec<f32> = base.iter().map(|x| x + shift).collect();
            let rows = LogitsMut::new(&mut row, 1, 4099).unwrap();
            let tokens = [token(17, 1.0)];
            cpu.rl_loss_in_place(rows, &tokens, &single, &TokenLoss::PAPER)
                .unwrap();
            exact(&row)
        };
        assert!(
            distance(&gradient(4096.0), &gradient(0.0)) < 1e-7,
            "{:?}",
            cpu.isa()
        );
    }
}

#[test]
fn masked_logits_get_exactly_nothing() {
    let row = [f32::NEG_INFINITY, 1.0, 2.0, -1e9, 0.5];
    let single = Sequences::single_tokens(1);
    for cpu in engines() {
        let mut got = row;
        let rows = LogitsMut::new(&mut got, 1, 5).unwrap();
        cpu.rl_loss_in_place(rows, &[token(1, 1.0)], &single, &TokenLoss::PAPER)
            .unwrap();
        assert_eq!((got[0], got[3]), (0.0, 0.0));
        assert!(got.iter().all(|g| g.is_finite()));
    }
}

#[test]
fn bits_repeat_and_do_not_depend_on_threads() {
    let (rows, vocab) = (37, 5003);
    let mut rng = generator(12);
    let data = logits::<bf16>(&mut rng, rows * vocab);
    let tokens: Vec<Token> = (0..rows).map(|i| token(i as u32 * 100, 1.1)).collect();
    let sequences = Sequences::from_lengths(&[10, 0, 20, 7]);
    let run = |cpu: Cpu, loss: &TokenLoss, threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
        pool.unwrap().install(|| {
            let mut data = data.clone();
            let rows = LogitsMut::new(&mut data, rows, vocab).unwrap();
            let result = cpu
                .rl_loss_in_place(rows, &tokens, &sequences, loss)
                .unwrap();
            (result, data)
        })
    };
    let gspo = TokenLoss {
        ratio: dart_kernels::RatioLevel::Sequence,
        ..TokenLoss::PAPER
    };
    for isa in Isa::available() {
        let cpu = Cpu::new().with_isa(isa).unwrap();
        for loss in [TokenLoss::PAPER, gspo] {
            let one = run(cpu.single_threaded(), &loss, 1);
            for threads in [1, 2, 3, 7] {
                assert!(run(cpu, &loss, threads) == one, "{isa:?} {threads}");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Any bits: finite rows give finite numbers, and all instruction sets agree.
    #[test]
    fn any_finite_row_gives_finite_numbers(
        bits in prop::collection::vec(any::<u16>(), 1..70), pick in 0usize..1000, temperature in 0.05f64..20.0,
    ) {
        let row: Vec<bf16> = bits.iter().map(|b| bf16::from_bits(*b)).collect();
        let target = pick % row.len();
        let has_numbers = row.iter().all(|x| !x.is_nan() && *x != bf16::INFINITY);
        let want = row_stats(&exact(&row), target, temperature);
        for cpu in engines() {
            let got = stats(cpu, &row, target as u32, temperature, 0);
            prop_assert_eq!(got.is_finite(), want.is_finite(), "{:?} {:?}", got, want);
            prop_assert!(!got.is_finite() || has_numbers);
            if got.is_finite() {
                let near = |a: f64, b: f64| (a - b).abs() <= 5e-6 * b.abs().max(1.0);
                prop_assert!(near(got.log_prob, want.log_prob), "{:?} {:?}", got, want);
                prop_assert!(near(got.entropy, want.entropy), "{:?} {:?}", got, want);
            }
        }
    }
}
