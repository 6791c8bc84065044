//! The token loss and its gradient over the logits.

use dart_kernels::{
    Cpu, Labels, LogitsMut, LossSums, RlLoss, Sequences, Temperature, Token, TokenLoss,
    cuda::{Error, Form, Gpu, GpuElement},
    row_stats,
};

use super::{
    Check, Extent, Result, inputs,
    notes::{note_gradient, note_outcome, note_sums, relative_errors},
    published,
    rows::{Rows, current, exact, sequences},
};

pub(super) fn losses<T: GpuElement>(gpu: &Gpu, extent: Extent, form: Form) -> Result<Check> {
    let mut check = Check::new(format!("rl_loss_in_place {:?} {form:?}", T::KIND));
    for (case, vocab) in extent.vocabularies.iter().copied().enumerate() {
        let stream = 100 + case as u64;
        let rows = Rows::<T>::new(stream, extent.rows, vocab, case % 9);
        let tokens = inputs::tokens(stream, vocab, &current(&rows, stream));
        // One loss for large vocabularies, all for small ones.
        let all = published();
        let chosen = if vocab > 2000 {
            &all[case % all.len()..][..1]
        } else {
            &all[..]
        };
        for (name, loss) in chosen {
            if form == Form::Fused && gpu.form::<T>(vocab, loss.is_token_level()) != Form::Fused {
                continue;
            }
            let at = format!("{name}, vocabulary {vocab}");
            one_loss((gpu, form), &rows, (&tokens, loss), &mut check, &at)?;
        }
    }
    Ok(check)
}

fn one_loss<T: GpuElement>(
    (gpu, form): (&Gpu, Form),
    rows: &Rows<T>,
    (tokens, loss): (&[Token], &TokenLoss),
    check: &mut Check,
    at: &str,
) -> Result<()> {
    let sequences = sequences(tokens.len());
    let mut ours = Rows {
        buffer: rows.buffer.clone(),
        ..*rows
    };
    let (got, sums) = ours.run(gpu, |mut logits| {
        let mut batch = gpu.batch(tokens, &sequences, loss)?;
        gpu.run(&mut logits, &mut batch, Some(form))?;
        Ok((gpu.results(&batch)?, gpu.loss_sums(&batch)?))
    })?;
    let (want, gradient) = reference(rows, tokens, &sequences, loss)?;
    for (row, (got, want)) in got.outcomes.iter().zip(&want.outcomes).enumerate() {
        note_outcome(check, got, want, &format!("{at}, token {row}"));
    }
    check.note(got.loss, want.loss, 2e-5 * want.loss.abs().max(1.0), || {
        format!("{at}, sum")
    });
    let expected = LossSums::of(loss, tokens, &want.outcomes);
    note_sums(check, &sums, &expected, at);
    let vocab = rows.shape.vocab;
    for row in 0..rows.shape.rows {
        let truth = &gradient[row * vocab..][..vocab];
        let slopes = relative_errors(&got.outcomes[row], &want.outcomes[row]);
        let at = format!("{at}, gradient of row {row}");
        note_gradient(check, ours.row(row), truth, slopes, &at);
    }
    // What lies between the rows stays as it was.
    let gaps = (0..rows.buffer.len()).filter(|i| {
        let past = i.checked_sub(rows.shift);
        past.is_none_or(|past| past % rows.shape.row_stride >= vocab)
    });
    for i in gaps {
        let (got, want) = (ours.buffer[i].into(), rows.buffer[i].into());
        check.note(got, want, 0.0, || format!("{at}, gap at {i}"));
    }
    Ok(())
}

/// Loss and gradient in f64.
fn reference<T: GpuElement>(
    rows: &Rows<T>,
    tokens: &[Token],
    sequences: &Sequences,
    loss: &TokenLoss,
) -> Result<(RlLoss, Vec<f64>)> {
    let vocab = rows.shape.vocab;
    let mut gradient: Vec<f64> = (0..rows.shape.rows)
        .flat_map(|row| exact(rows.row(row)))
        .collect();
    let logits = LogitsMut::new(&mut gradient, rows.shape.rows, vocab)?;
    let loss = Cpu::new().rl_loss_in_place(logits, tokens, sequences, loss)?;
    Ok((loss, gradient))
}

/// The same bits twice, and the same gradient from either form within its rounding.
pub(super) fn repeats<T: GpuElement>(gpu: &Gpu, form: Form) -> Result<Check> {
    let mut check = Check::new(format!("repeats {:?} {form:?}", T::KIND));
    let rows = Rows::<T>::new(7, 9, 4099, 1);
    let tokens = inputs::tokens(7, 4099, &current(&rows, 7));
    let sequences = sequences(tokens.len());
    let run = || {
        let mut ours = Rows {
            buffer: rows.buffer.clone(),
            ..rows
        };
        let loss = ours.run(gpu, |mut logits| {
            let mut batch = gpu.batch(&tokens, &sequences, &TokenLoss::PAPER)?;
            gpu.run(&mut logits, &mut batch, Some(form))?;
            gpu.results(&batch)
        })?;
        Ok::<_, Error>((loss.loss, exact(&ours.buffer)))
    };
    let (first, second) = (run()?, run()?);
    check.note(first.0, second.0, 0.0, || "loss".into());
    for (i, (a, b)) in first.1.iter().zip(&second.1).enumerate() {
        check.note(*a, *b, 0.0, || format!("element {i}"));
    }
    Ok(check)
}

pub(super) fn gradient_of_labels<T: GpuElement>(gpu: &Gpu) -> Result<Check> {
    let mut check = Check::new(format!("label_gradient {:?}", T::KIND));
    let vocab = 1003;
    let mut rows = Rows::<T>::new(8, 5, vocab, 3);
    let before: Vec<Vec<f64>> = (0..5).map(|row| exact(rows.row(row))).collect();
    let targets: Vec<u32> = (0..5).map(|row| inputs::target(8, row, vocab)).collect();
    let by: Vec<f64> = (0..10).map(|i| inputs::uniform(8, i) - 0.5).collect();
    let labels = Labels {
        temperature: Temperature::Shared(1.3),
        ignore: Some(targets[3]),
        ..Labels::new(&targets)
    };
    rows.run(gpu, |logits| gpu.label_gradient(logits, &labels, &by))?;
    for (row, before) in before.iter().enumerate() {
        let target = targets[row] as usize;
        let mut want = vec![0.0; vocab];
        if row != 3 {
            let stats = row_stats(before, target, 1.3);
            let by = dart_kernels::RowGradient {
                log_prob: by[2 * row],
                entropy: by[2 * row + 1],
            };
            dart_kernels::row_gradient(before, (target, 1.3), &stats, by, &mut want);
        }
        note_gradient(&mut check, rows.row(row), &want, 0.0, &format!("row {row}"));
    }
    Ok(check)
}
