//! Steps against the formulas in f64.

use candle_core::{Device, Var};

use super::*;

const RATES: Rates = Rates {
    optimizer: OptimizerConfig::ADAMW,
    learning_rate: 0.1,
    weight_decay: 0.5,
    grad_clip: 0.0,
    gradient_scale: 1.0,
};

const MATRIX: [f32; 6] = [1.0, -2.0, 0.5, 3.0, -0.25, 1.5];

/// A matrix of 2 by 3, one that the loss does not reach, and a vector.
fn parameters() -> Parameters {
    let mut parameters = Parameters::default();
    let var = |values: &[f32], shape: &[usize]| {
        Var::from_tensor(&Tensor::from_slice(values, shape, &Device::Cpu).unwrap()).unwrap()
    };
    parameters.insert("matrix", var(&MATRIX, &[2, 3]));
    parameters.insert("unreached", var(&[3.0], &[1, 1]));
    parameters.insert("vector", var(&[1.0, 1.0], &[2]));
    parameters
}

fn values(parameters: &Parameters, name: &str) -> Vec<f32> {
    let var = parameters.get(name).unwrap();
    var.flatten_all().unwrap().to_vec1().unwrap()
}

/// The matrix' gradients in three steps: of very different sizes, and once 0 all over a row.
const STEPS: [[f32; 6]; 3] = [
    [0.5, -1.0, 0.25, 8.0, 0.0, -0.5],
    [0.1, 3.0, -0.2, 1e-4, 2.0, -1.0],
    [0.0, 0.0, 0.0, -1.0, 0.5, 0.25],
];

/// The values after `STEPS`.
fn moved(optimizer: OptimizerConfig) -> (Parameters, Optimizer) {
    let parameters = parameters();
    let mut state = Optimizer::default();
    let rates = Rates { optimizer, ..RATES };
    for g in STEPS {
        let gradients = vec![Some(g.to_vec()), None, Some(vec![2.0, -4.0])].into();
        state.step(&parameters, &gradients, &rates).unwrap();
    }
    (parameters, state)
}

fn assert_near(got: &[f32], expected: &[f64]) {
    for (got, expected) in got.iter().zip(expected) {
        let got = f64::from(*got);
        assert!(
            (got - expected).abs() < 1e-5 * expected.abs().max(1.0),
            "{got} is not {expected}"
        );
    }
}

#[test]
fn adamw_agrees_with_the_formula() {
    let (parameters, state) = moved(OptimizerConfig::ADAMW);
    let expected: Vec<f64> = (0..6)
        .map(|index| {
            let (mut value, mut m, mut v) = (f64::from(MATRIX[index]), 0.0f64, 0.0f64);
            for (t, g) in (1..).zip(STEPS) {
                let g = f64::from(g[index]);
                m = 0.9 * m + 0.1 * g;
                v = 0.999 * v + 0.001 * g * g;
                let (m_hat, v_hat) = (m / (1.0 - 0.9f64.powi(t)), v / (1.0 - 0.999f64.powi(t)));
                value = value * (1.0 - 0.1 * 0.5) - 0.1 * m_hat / (v_hat.sqrt() + 1e-8);
            }
            value
        })
        .collect();
    assert_near(&values(&parameters, "matrix"), &expected);
    assert_eq!(values(&parameters, "unreached"), [3.0]);
    assert!(!state.moments.contains_key("unreached"));
    assert_near(&values(&parameters, "vector"), &[0.7, 1.3]);
}

/// Adafactor as the paper writes it, on a matrix: sums instead of means, no step-size schedule.
fn adafactor_reference(betas: [f64; 2], clip: f64) -> Vec<f64> {
    let mut x: Vec<f64> = MATRIX.iter().map(|x| f64::from(*x)).collect();
    let (mut r, mut c, mut m) = ([0.0f64; 2], [0.0f64; 3], [0.0f64; 6]);
    for (t, g) in (1..).zip(STEPS) {
        let g = g.map(f64::from);
        for i in 0..2 {
            let sum: f64 = (0..3).map(|j| g[i * 3 + j].powi(2) + 1e-30).sum();
            r[i] = betas[1] * r[i] + (1.0 - betas[1]) * sum;
        }
        for j in 0..3 {
            let sum: f64 = (0..2).map(|i| g[i * 3 + j].powi(2) + 1e-30).sum();
            c[j] = betas[1] * c[j] + (1.0 - betas[1]) * sum;
        }
        let total: f64 = r.iter().sum();
        let mut u = [0.0; 6];
        for (index, u) in u.iter_mut().enumerate() {
            let v = r[index / 3] * c[index % 3] / total / (1.0 - betas[1].powi(t));
            *u = g[index] / v.sqrt();
        }
        let rms = (u.iter().map(|u| u * u).sum::<f64>() / 6.0).sqrt();
        for (index, u) in u.iter().enumerate() {
            let u = u / (rms / clip).max(1.0);
            m[index] = betas[0] * m[index] + (1.0 - betas[0]) * u;
            let step = m[index] / (1.0 - betas[0].powi(t));
            x[index] = x[index] * (1.0 - 0.1 * 0.5) - 0.1 * step;
        }
    }
    x
}

#[test]
fn adafactor_agrees_with_the_formula() {
    for (betas, clip_rms) in [([0.0, 0.999], 1.0), ([0.0, 0.9], 0.3), ([0.8, 0.99], 1.0)] {
        let (parameters, state) = moved(OptimizerConfig::Adafactor {
            betas,
            epsilon: 1e-30,
            clip_rms,
        });
        assert_near(
            &values(&parameters, "matrix"),
            &adafactor_reference(betas, clip_rms),
        );
        let matrix = &state.moments["matrix"];
        assert_eq!(matrix.first.len(), if betas[0] > 0.0 { 6 } else { 0 });
        let Second::Factored { rows, columns } = &matrix.second else {
            panic!("a matrix is factored");
        };
        assert_eq!((rows.len(), columns.len()), (2, 3));
        // A constant gradient divided by its own size: ±1, cut together if the cut is below.
        let step = 3.0 * 0.1 * clip_rms.min(1.0);
        assert_near(&values(&parameters, "vector"), &[1.0 - step, 1.0 + step]);
    }
}

#[test]
fn a_single_step_by_hand() {
    // Squares 1 4 / 9 36: rows 2.5 and 22.5, columns 5 and 20, mean 12.5, so the factored moments
    // are 1 4 / 9 36 again (a product), and every update is the sign.
    let mut parameters = Parameters::default();
    let var = Tensor::from_slice(&[0f32; 4], (2, 2), &Device::Cpu).unwrap();
    parameters.insert("w", Var::from_tensor(&var).unwrap());
    let mut state = Optimizer::default();
    let rates = Rates {
        optimizer: OptimizerConfig::ADAFACTOR,
        ..RATES
    };
    let gradients = vec![Some(vec![1.0, -2.0, -3.0, 6.0])].into();
    state.step(&parameters, &gradients, &rates).unwrap();
    assert_near(&values(&parameters, "w"), &[-0.1, 0.1, 0.1, -0.1]);
}

#[test]
fn state_of_another_optimizer_begins_anew() {
    let (parameters, mut state) = moved(OptimizerConfig::ADAMW);
    let rates = Rates {
        optimizer: OptimizerConfig::ADAFACTOR,
        ..RATES
    };
    let gradients = vec![Some(STEPS[0].to_vec()), None, None].into();
    state.step(&parameters, &gradients, &rates).unwrap();
    assert_eq!(state.moments["matrix"].steps, 1);
    assert_eq!(state.moments["vector"].steps, 3, "no gradient, no change");
}
