//! The last linear layer and the loss in one: logits exist for a chunk of rows at a time.
//!
//! For each chunk: logits = hidden · weightᵀ, the loss overwrites them by their gradient, then
//! ∂hidden = gradient · weight and ∂weight += gradientᵀ · hidden. Nothing is computed twice, so a
//! step costs three products of the size of the layer. A loss with a sequence-level part needs all
//! log-probs first: one more product.
//!
//! Rows of weight 0 take no part in any product. The number of threads
//! does not change a bit; the size of a chunk changes roundings, as it splits the sums of ∂weight.

mod products;

use crate::{
    Cpu, Error, Labels, Logits, LogitsMut, Result, RlLoss, RowStats, Sequences, Temperature, Token,
    TokenLoss, TokenOutcome, label_gradient::label_gradient, rl_loss::check, token_losses,
};

/// Logits of a chunk unless something else is asked for: 128 MiB.
const CHUNK_LOGITS: usize = 1 << 25;

/// The last linear layer, without bias, and what goes into it.
#[derive(Clone, Copy, Debug)]
pub struct Head<'a> {
    /// Hidden states `[rows, width]`, row-major.
    pub hidden: &'a [f32],
    /// Weight `[vocab, width]`, row-major.
    pub weight: &'a [f32],
    /// One row for each token.
    pub rows: usize,
    /// Numbers of a hidden state.
    pub width: usize,
    /// Logits of a row. Rows of a padded weight beyond the vocabulary are cut off by the caller.
    pub vocab: usize,
}

/// What is asked of the layer's logits.
#[derive(Clone, Copy, Debug)]
pub struct Objective<'a> {
    /// One token for each row.
    pub tokens: &'a [Token],
    /// Which of them belong together.
    pub sequences: &'a Sequences,
    /// Their loss.
    pub loss: TokenLoss,
}

/// What [`FusedLinear::rl_loss`] gives beside ∂weight.
#[derive(Clone, Debug, PartialEq)]
pub struct FusedLoss {
    /// Loss, outcomes and bad rows, as of the logits.
    pub loss: RlLoss,
    /// Derivative with respect to the hidden states `[rows, width]`.
    pub by_hidden: Vec<f32>,
}

/// How the layer runs.
#[derive(Clone, Copy, Debug, Default)]
pub struct FusedLinear {
    cpu: Cpu,
    chunk_rows: Option<usize>,
}

/// [`FusedLinear::rl_loss`] with the fastest instruction set, all threads and chunks of 128 MiB.
///
/// # Errors
/// Those of [`FusedLinear::rl_loss`].
///
/// ```
/// use dart_kernels::{Sequences, Token, TokenLoss, fused_linear::{Head, Objective, fused_linear}};
///
/// # fn main() -> dart_kernels::Result<()> {
/// let head = Head { hidden: &[1.0], weight: &[2.0, 2.0], rows: 1, width: 1, vocab: 2 };
/// let token = Token {
///     target: 1, temperature: 1.0, weight: 1.0, advantage: 1.0,
///     old: None, rollout: None, reference: None,
/// };
/// let objective = Objective {
///     tokens: &[token],
///     sequences: &Sequences::single_tokens(1),
///     loss: TokenLoss::LIKELIHOOD,
/// };
/// let mut by_weight = [0.0; 2];
/// let result = fused_linear(&head, &objective, &mut by_weight)?;
/// assert_eq!((result.by_hidden, by_weight), (vec![0.0], [0.5, -0.5]));
/// # Ok(())
/// # }
/// ```
pub fn fused_linear(
    head: &Head<'_>,
    objective: &Objective<'_>,
    by_weight: &mut [f32],
) -> Result<FusedLoss> {
    FusedLinear::default().rl_loss(head, objective, by_weight)
}

/// [`FusedLinear::log_prob_entropy`] with the fastest instruction set, all threads and chunks of
/// 128 MiB.
///
/// # Errors
/// Those of [`FusedLinear::log_prob_entropy`].
pub fn fused_linear_log_prob_entropy(
    head: &Head<'_>,
    labels: &Labels<'_>,
) -> Result<Vec<RowStats>> {
    FusedLinear::default().log_prob_entropy(head, labels)
}

impl FusedLinear {
    /// On `cpu`, in chunks of 128 MiB of logits.
    pub const fn new(cpu: Cpu) -> Self {
        Self {
            cpu,
            chunk_rows: None,
        }
    }

    /// At most `rows` rows of logits at a time (at least 1).
    #[must_use]
    pub const fn with_chunk_rows(self, rows: usize) -> Self {
        Self {
            chunk_rows: Some(rows),
            ..self
        }
    }

    /// Log-probability of each row's target and entropy of the row.
    ///
    /// # Errors
    /// [`Error::Matrix`], [`Error::Length`], [`Error::Temperature`].
    pub fn log_prob_entropy(&self, head: &Head<'_>, labels: &Labels<'_>) -> Result<Vec<RowStats>> {
        head.check()?;
        labels.check(crate::Shape::dense(head.rows, head.vocab))?;
        let rows: Vec<usize> = (0..head.rows).collect();
        self.stats(head, labels, &rows)
    }

    /// Loss of the tokens, its derivative with respect to the hidden states, and `by_weight`
    /// `[vocab, width]`, to which the derivative with respect to the weight is *added*.
    ///
    /// Bad rows have a gradient of 0 and make the loss NaN, as in
    /// [`rl_loss_in_place`](crate::rl_loss_in_place).
    ///
    /// # Errors
    /// [`Error::Matrix`], [`Error::Length`], [`Error::Sequences`], [`Error::Temperature`]; nothing
    /// is written then.
    pub fn rl_loss(
        &self,
        head: &Head<'_>,
        objective: &Objective<'_>,
        by_weight: &mut [f32],
    ) -> Result<FusedLoss> {
        head.check()?;
        head.check_matrix("derivative of the weight", by_weight.len(), head.vocab)?;
        let tokens = objective.tokens;
        check(head.rows, tokens)?;
        objective.sequences.check(tokens.len())?;
        let rows: Vec<usize> = (0..head.rows)
            .filter(|row| tokens[*row].weight != 0.0)
            .collect();
        let (mut outcomes, known) = if objective.loss.is_token_level() {
            (vec![TokenOutcome::default(); head.rows], false)
        } else {
            (self.outcomes(head, objective, &rows)?, true)
        };
        let mut by_hidden = vec![0.0; head.hidden.len()];
        for rows in rows.chunks(self.chunk(head)) {
            let mut hidden = head.gather(rows);
            let mut logits = self.logits(head, &hidden);
            let chunk = LogitsMut::new(&mut logits, rows.len(), head.vocab)?;
            if known {
                self.gradient(chunk, tokens, (rows, &outcomes))?;
            } else {
                self.loss(chunk, objective, (rows, &mut outcomes))?;
            }
            head.clear_bad(&mut hidden, rows, &outcomes);
            self.add_by_weight(head, (&logits, &hidden), by_weight);
            let by_chunk = self.by_hidden(head, &logits, rows.len());
            for (row, by) in rows.iter().zip(by_chunk.chunks(head.width)) {
                by_hidden[row * head.width..][..head.width].copy_from_slice(by);
            }
        }
        Ok(FusedLoss {
            loss: RlLoss::sum(tokens, outcomes),
            by_hidden,
        })
    }

    fn chunk(&self, head: &Head<'_>) -> usize {
        let rows = self.chunk_rows.unwrap_or(CHUNK_LOGITS / head.vocab.max(1));
        rows.max(1)
    }

    /// Outcomes of all tokens, whose log-probs must be known before the first gradient.
    fn outcomes(
        &self,
        head: &Head<'_>,
        objective: &Objective<'_>,
        rows: &[usize],
    ) -> Result<Vec<TokenOutcome>> {
        let tokens = objective.tokens;
        let targets: Vec<u32> = tokens.iter().map(|token| token.target).collect();
        let temperatures: Vec<f64> = tokens.iter().map(|token| token.temperature).collect();
        let labels = Labels {
            temperature: Temperature::PerRow(&temperatures),
            ..Labels::new(&targets)
        };
        let mut current = vec![(0.0, 0.0); tokens.len()];
        for (row, stats) in rows.iter().zip(self.stats(head, &labels, rows)?) {
            current[*row] = (stats.log_prob, stats.entropy);
        }
        let (sequences, loss) = (objective.sequences, &objective.loss);
        Ok(token_losses(loss, tokens, sequences, &current))
    }

    /// Statistics of some rows; `labels` are those of all rows.
    fn stats(&self, head: &Head<'_>, labels: &Labels<'_>, rows: &[usize]) -> Result<Vec<RowStats>> {
        let mut stats = Vec::with_capacity(rows.len());
        for rows in rows.chunks(self.chunk(head)) {
            let logits = self.logits(head, &head.gather(rows));
            let logits = Logits::new(&logits, rows.len(), head.vocab)?;
            let temperatures: Vec<f64> = rows.iter().map(|row| labels.temperature(*row)).collect();
            let labels = Labels {
                targets: &pick(labels.targets, rows),
                temperature: Temperature::PerRow(&temperatures),
                ignore: labels.ignore,
            };
            stats.extend(self.cpu.log_prob_entropy(logits, &labels)?);
        }
        Ok(stats)
    }

    /// Overwrites logits by their gradient and fills in the outcomes of some rows.
    fn loss(
        &self,
        logits: LogitsMut<'_, f32>,
        objective: &Objective<'_>,
        (rows, outcomes): (&[usize], &mut [TokenOutcome]),
    ) -> Result<()> {
        let tokens = pick(objective.tokens, rows);
        let alone = Sequences::single_tokens(rows.len());
        let loss = &objective.loss;
        let result = self.cpu.rl_loss_in_place(logits, &tokens, &alone, loss)?;
        for (outcome, row) in result.outcomes.iter().zip(rows) {
            outcomes[*row] = *outcome;
        }
        Ok(())
    }

    /// Overwrites logits by their gradient, given the outcomes of all tokens.
    fn gradient(
        &self,
        logits: LogitsMut<'_, f32>,
        tokens: &[Token],
        (rows, outcomes): (&[usize], &[TokenOutcome]),
    ) -> Result<()> {
        let targets: Vec<u32> = rows.iter().map(|row| tokens[*row].target).collect();
        let temperatures: Vec<f64> = rows.iter().map(|row| tokens[*row].temperature).collect();
        let labels = Labels {
            temperature: Temperature::PerRow(&temperatures),
            ..Labels::new(&targets)
        };
        let by: Vec<f64> = rows
            .iter()
            .flat_map(|row| [outcomes[*row].by_log_prob, outcomes[*row].by_entropy])
            .collect();
        label_gradient(self.cpu, logits, &labels, &by)
    }
}

impl Head<'_> {
    fn check(&self) -> Result<()> {
        self.check_matrix("hidden states", self.hidden.len(), self.rows)?;
        self.check_matrix("weight", self.weight.len(), self.vocab)?;
        if self.rows > 0 && (self.width == 0 || self.vocab == 0) {
            return Err(Error::Matrix {
                what: "layer",
                elements: 0,
                rows: self.vocab,
                cols: self.width,
            });
        }
        Ok(())
    }

    fn check_matrix(&self, what: &'static str, elements: usize, rows: usize) -> Result<()> {
        if rows.checked_mul(self.width) == Some(elements) {
            return Ok(());
        }
        Err(Error::Matrix {
            what,
            elements,
            rows,
            cols: self.width,
        })
    }

    /// Hidden states of some rows, one after another.
    fn gather(&self, rows: &[usize]) -> Vec<f32> {
        let row = |row: &usize| &self.hidden[row * self.width..(row + 1) * self.width];
        rows.iter().flat_map(row).copied().collect()
    }

    /// Clears the hidden states of bad rows: their gradient is 0, but 0 times them may be NaN.
    fn clear_bad(&self, hidden: &mut [f32], rows: &[usize], outcomes: &[TokenOutcome]) {
        for (row, hidden) in rows.iter().zip(hidden.chunks_mut(self.width)) {
            let outcome = &outcomes[*row];
            if !outcome.log_prob.is_finite() || !outcome.entropy.is_finite() {
                hidden.fill(0.0);
            }
        }
    }
}

fn pick<T: Copy>(all: &[T], rows: &[usize]) -> Vec<T> {
    rows.iter().map(|row| all[*row]).collect()
}
