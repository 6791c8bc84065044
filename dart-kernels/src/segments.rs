//! Means over the tokens of a step, and which steps or tokens are trained on.
//!
//! # Source
//! arXiv 2509.23866 §3.4: of each group the steps whose mean entropy reaches the 0.2-quantile;
//! arXiv 2506.01939 ("80/20") for the same choice among tokens.

use crate::{Error, Result, Sequences};

/// Sum and mean over the tokens of one step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Segment {
    /// Tokens that count.
    pub tokens: usize,
    /// Sum over them.
    pub sum: f64,
    /// Mean over them; NaN of none.
    pub mean: f64,
}

/// Sum and mean of `values` over each step of `steps`; tokens where `mask` is false do not count.
///
/// # Errors
/// [`Error::Length`] or [`Error::Sequences`] if the lengths differ.
///
/// ```
/// use dart_kernels::{Sequences, segments::segment_means};
///
/// let steps = Sequences::from_lengths(&[2, 1]);
/// let means = segment_means(&[1.0, 2.0, 9.0], &[true, true, true], &steps)?;
/// assert_eq!((means[0].mean, means[1].mean), (1.5, 9.0));
/// # Ok::<(), dart_kernels::Error>(())
/// ```
pub fn segment_means(values: &[f64], mask: &[bool], steps: &Sequences) -> Result<Vec<Segment>> {
    steps.check(values.len())?;
    same_length("entries of a mask", mask.len(), values.len())?;
    let segment = |range: std::ops::Range<usize>| {
        let read = range.filter(|index| mask[*index]);
        let (tokens, sum) = read.fold((0usize, 0.0), |(tokens, sum), index| {
            (tokens + 1, sum + values[index])
        });
        Segment {
            tokens,
            sum,
            mean: sum / tokens as f64,
        }
    };
    Ok(steps.ranges().map(segment).collect())
}

/// Which steps of a group stay.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Selection {
    /// Those that reach this quantile of the group, in 0 to 1; ties stay (0.2 keeps the top 80 %).
    Quantile(f64),
    /// The first ceil(fraction · steps) in order, fraction in 0 to 1; the earlier of two equal
    /// steps goes first.
    TopFraction(f64),
}

/// Which steps stay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selected {
    /// For each step whether it stays.
    pub kept: Vec<bool>,
    /// Steps whose number is NaN. None of them stays.
    pub not_numbers: usize,
}

/// Which steps stay, by `values` such as mean entropies. `groups` holds a group's id for each step;
/// each group is chosen from alone. NaN does not count as a step of its group.
///
/// # Errors
/// [`Error::Length`] if the lengths differ, [`Error::Selection`] if the share is not in 0 to 1.
pub fn select_steps(values: &[f64], groups: &[u64], selection: Selection) -> Result<Selected> {
    same_length("group ids", groups.len(), values.len())?;
    let (Selection::Quantile(share) | Selection::TopFraction(share)) = selection;
    if !(0.0..=1.0).contains(&share) {
        return Err(Error::Selection(share));
    }
    let mut kept = vec![false; values.len()];
    let mut order = descending(values);
    // Stable: within a group the order stays.
    order.sort_by_key(|index| groups[*index]);
    for group in order.chunk_by(|a, b| groups[*a] == groups[*b]) {
        let numbers = group.iter().position(|index| values[*index].is_nan());
        let group = &group[..numbers.unwrap_or(group.len())];
        let count = match selection {
            Selection::Quantile(share) => {
                let threshold = quantile(group, values, share);
                group.partition_point(|index| values[*index] >= threshold)
            }
            Selection::TopFraction(share) => (share * group.len() as f64).ceil() as usize,
        };
        group[..count].iter().for_each(|index| kept[*index] = true);
    }
    Ok(Selected {
        kept,
        not_numbers: values.iter().filter(|value| value.is_nan()).count(),
    })
}

/// Indices from the largest to the smallest value, the earlier of two equal ones first, NaN last.
pub fn descending(values: &[f64]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    // Stable, so equal values keep the order of their indices. Both zeros are equal.
    order.sort_by(|a, b| {
        let (a, b) = (values[*a], values[*b]);
        b.partial_cmp(&a)
            .unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()))
    });
    order
}

/// The `share`-quantile of `values` at the indices of `descending`, interpolated between the two
/// nearest.
fn quantile(descending: &[usize], values: &[f64], share: f64) -> f64 {
    let Some(last) = descending.len().checked_sub(1) else {
        return f64::NAN;
    };
    let position = share * last as f64;
    let below = (position.floor() as usize).min(last);
    let ascending = |rank: usize| values[descending[last - rank]];
    let (low, high) = (ascending(below), ascending((below + 1).min(last)));
    let part = position - below as f64;
    // Also keeps ∞ − ∞ and 0 · ∞ out.
    if part == 0.0 || low == high {
        return low;
    }
    low + (high - low) * part
}

/// Which tokens stay if these steps do: those of `mask` whose step is kept.
///
/// # Errors
/// [`Error::Length`] or [`Error::Sequences`] if the lengths differ.
pub fn token_mask(kept: &[bool], mask: &[bool], steps: &Sequences) -> Result<Vec<bool>> {
    steps.check(mask.len())?;
    same_length("steps", kept.len(), steps.len())?;
    let mut tokens = mask.to_vec();
    for (range, kept) in steps.ranges().zip(kept) {
        if !kept {
            tokens[range].fill(false);
        }
    }
    Ok(tokens)
}

/// "80/20": the tokens of `mask` whose value reaches the `share`-quantile over all tokens of `mask`
/// (0.8 keeps the top 20 %), ties and all. The denominator of the loss stays the number of all
/// tokens, so weights are made from `mask`, not from what is returned.
///
/// # Errors
/// [`Error::Length`] if the lengths differ, [`Error::Selection`] if the share is not in 0 to 1.
pub fn select_tokens(values: &[f64], mask: &[bool], share: f64) -> Result<Selected> {
    same_length("entries of a mask", mask.len(), values.len())?;
    let read: Vec<usize> = (0..mask.len()).filter(|index| mask[*index]).collect();
    let of_read: Vec<f64> = read.iter().map(|index| values[*index]).collect();
    let selected = select_steps(&of_read, &vec![0; read.len()], Selection::Quantile(share))?;
    let mut kept = vec![false; mask.len()];
    read.iter()
        .zip(&selected.kept)
        .for_each(|(index, stays)| kept[*index] = *stays);
    Ok(Selected { kept, ..selected })
}

fn same_length(what: &'static str, got: usize, rows: usize) -> Result<()> {
    if got == rows {
        return Ok(());
    }
    Err(Error::Length { what, got, rows })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_is_stable_and_nan_comes_last() {
        let values = [1.0, f64::NAN, 3.0, 1.0, -0.0, f64::NAN, 0.0, f64::INFINITY];
        assert_eq!(descending(&values), [7, 2, 0, 3, 4, 6, 1, 5]);
    }

    #[test]
    fn each_group_is_chosen_from_alone_and_ties_stay() {
        let values = [5.0, 1.0, 4.0, 2.0, 3.0, 0.0, 7.0, 7.0];
        let groups = [9, 2, 9, 2, 9, 9, 2, 2];
        let kept = |selection| select_steps(&values, &groups, selection).unwrap().kept;
        // Group 9 holds 5 4 3 0 with the median 3.5, group 2 holds 1 2 7 7 with 4.5.
        let half = [true, false, true, false, false, false, true, true];
        assert_eq!(kept(Selection::Quantile(0.5)), half);
        assert_eq!(kept(Selection::TopFraction(0.5)), half);
        let ties = [true, false, false, false, false, false, true, true];
        assert_eq!(kept(Selection::Quantile(1.0)), ties);
        let first = [true, false, false, false, false, false, true, false];
        assert_eq!(kept(Selection::TopFraction(0.01)), first);
        assert_eq!(kept(Selection::Quantile(0.0)), [true; 8]);
        assert_eq!(kept(Selection::TopFraction(0.0)), [false; 8]);
    }

    #[test]
    fn nan_is_dropped_counted_and_not_part_of_its_group() {
        let values = [f64::NAN, 1.0, 2.0, f64::NAN];
        let selected = select_steps(&values, &[0; 4], Selection::TopFraction(0.5)).unwrap();
        assert_eq!(selected.kept, [false, false, true, false]);
        assert_eq!(selected.not_numbers, 2);
        let alone = select_steps(&values[..1], &[0], Selection::Quantile(0.2)).unwrap();
        assert_eq!((alone.kept, alone.not_numbers), (vec![false], 1));
    }

    #[test]
    fn infinite_entropies_do_not_break_the_quantile() {
        let values = [f64::INFINITY, f64::INFINITY, 1.0];
        let kept = |q| select_steps(&values, &[0; 3], Selection::Quantile(q)).unwrap();
        assert_eq!(kept(0.5).kept, [true, true, false]);
        assert_eq!(kept(0.75).kept, [true, true, false]);
        assert_eq!(kept(0.0).kept, [true; 3]);
    }

    #[test]
    fn masks_follow_their_steps() {
        let steps = Sequences::from_lengths(&[2, 0, 2]);
        let mask = [true, true, true, false];
        let tokens = token_mask(&[false, true, true], &mask, &steps).unwrap();
        assert_eq!(tokens, [false, false, true, false]);
        let means = segment_means(&[1.0, 3.0, 5.0, f64::NAN], &mask, &steps).unwrap();
        assert_eq!((means[0].sum, means[0].mean), (4.0, 2.0));
        assert!(means[1].mean.is_nan() && means[1].tokens == 0);
        assert_eq!((means[2].tokens, means[2].mean), (1, 5.0));
    }

    #[test]
    fn wrong_lengths_and_shares_are_errors() {
        let steps = Sequences::from_lengths(&[2]);
        assert!(segment_means(&[1.0], &[true], &steps).is_err());
        assert!(segment_means(&[1.0; 2], &[true], &steps).is_err());
        assert!(token_mask(&[true; 2], &[true; 2], &steps).is_err());
        assert!(select_tokens(&[1.0], &[], 0.5).is_err());
        for share in [-0.1, 1.1, f64::NAN] {
            let error = select_steps(&[1.0], &[0], Selection::TopFraction(share)).unwrap_err();
            assert!(matches!(error, Error::Selection(_)), "{error}");
        }
    }
}
