//! Operation (a) on the GPU: log-probability of a label and entropy of each row, in one pass.

use cudarc::driver::{CudaSlice, LaunchConfig, PushKernelArg};

use super::{
    abi,
    buffers::{DeviceLogits, Rows, elements},
    error::{Attempt, Error, Result},
    gpu::{Gpu, GpuElement},
    plan::{launches, row_threads},
};
use crate::{Labels, RowStats, Shape, Temperature};

/// [`Labels`] on the device.
#[derive(Debug)]
pub struct DeviceLabels {
    targets: CudaSlice<u32>,
    inverse_temperatures: CudaSlice<f32>,
    /// In use where there is one temperature for all rows.
    shared: Option<f32>,
    ignore: u32,
    rows: usize,
}

impl Gpu {
    /// [`crate::log_prob_entropy()`] for logits on the device.
    ///
    /// # Errors
    /// [`Error::Refused`] as on the CPU, [`Error::Driver`].
    pub fn log_prob_entropy<T: GpuElement>(
        &self,
        logits: &DeviceLogits<'_, T>,
        labels: &Labels<'_>,
    ) -> Result<Vec<RowStats>> {
        let rows = logits.shape().rows;
        let labels = self.upload_labels(labels, logits.shape())?;
        let mut stats = self.zeros::<abi::RowStats>(rows)?;
        self.row_stats(logits, &labels, &mut stats)?;
        let stats = self.download(&stats)?;
        Ok(stats[..rows].iter().map(RowStats::from).collect())
    }

    /// Copies labels for rows of `shape` to the device, after checking them.
    ///
    /// # Errors
    /// [`Error::Refused`] as on the CPU, [`Error::Driver`].
    pub fn upload_labels(&self, labels: &Labels<'_>, shape: Shape) -> Result<DeviceLabels> {
        labels.check(shape)?;
        let (shared, inverse) = match labels.temperature {
            Temperature::Shared(temperature) => (Some((1.0 / temperature) as f32), vec![]),
            Temperature::PerRow(all) => (None, all.iter().map(|t| (1.0 / t) as f32).collect()),
        };
        Ok(DeviceLabels {
            targets: self.upload(labels.targets)?,
            inverse_temperatures: self.upload(&inverse)?,
            shared,
            ignore: labels.ignore.unwrap_or_else(|| unused(labels.targets)),
            rows: labels.targets.len(),
        })
    }

    /// Queues the statistics of every row into `stats`. Does not wait.
    ///
    /// # Errors
    /// [`Error::Refused`] if there is not one label for each row, [`Error::Buffer`] if `stats` is
    /// too short, [`Error::Driver`].
    pub fn row_stats<T: GpuElement>(
        &self,
        logits: &DeviceLogits<'_, T>,
        labels: &DeviceLabels,
        stats: &mut CudaSlice<abi::RowStats>,
    ) -> Result<()> {
        let shape = logits.shape();
        if labels.rows != shape.rows {
            return Err(crate::Error::Length {
                what: "labels",
                got: labels.rows,
                rows: shape.rows,
            }
            .into());
        }
        need("the buffer of statistics", stats.len(), shape.rows)?;
        let Rows { stride, vocab } = Rows::of(shape);
        let null = 0u64;
        for rows in launches(shape.rows, 1) {
            let data = logits.data.slice(elements(shape, &rows));
            let targets = labels.targets.slice(rows.clone());
            let mut out = stats.slice_mut(rows.clone());
            let mut launch = self
                .stream()
                .launch_builder(&self.kernels().rows(T::KIND).log_prob_entropy);
            launch.arg(&data).arg(&stride).arg(&vocab).arg(&targets);
            let per_row;
            if labels.shared.is_some() {
                launch.arg(&null);
            } else {
                per_row = labels.inverse_temperatures.slice(rows.clone());
                launch.arg(&per_row);
            }
            let shared = labels.shared.unwrap_or(1.0);
            launch.arg(&shared).arg(&labels.ignore).arg(&mut out);
            let config = row_grid(rows.len(), 1, row_threads(shape.vocab, size_of::<T>()));
            // SAFETY: arguments as in cuda/abi.cuh. The kernel reads `rows` rows of `vocab` logits
            // `stride` apart, which `data` was cut to hold, and as many labels; it writes one
            // struct per row into `out`; labels outside the vocabulary are not followed.
            unsafe { launch.launch(config) }.to("start logprob_entropy")?;
        }
        Ok(())
    }
}

/// Refuses a buffer that is too short.
pub(super) fn need(what: &'static str, got: usize, needed: usize) -> Result<()> {
    if got < needed {
        return Err(Error::Buffer { what, got, needed });
    }
    Ok(())
}

/// One-dimensional grid with `ctas` CTAs for each of `rows` rows, which [`launches`] has bounded.
pub(super) fn row_grid(rows: usize, ctas: usize, threads: u32) -> LaunchConfig {
    LaunchConfig {
        grid_dim: ((rows * ctas) as u32, 1, 1),
        block_dim: (threads, 1, 1),
        shared_mem_bytes: 0,
    }
}

/// A label that no row has, and that lies outside every vocabulary: "ignore none".
fn unused(targets: &[u32]) -> u32 {
    let outside = 1 << 31..=u32::MAX;
    outside
        .rev()
        .find(|label| !targets.contains(label))
        .unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_ignored_by_accident() {
        assert_eq!(unused(&[1, 2]), u32::MAX);
        assert_eq!(unused(&[u32::MAX, u32::MAX - 1, 5]), u32::MAX - 2);
    }

    #[test]
    fn short_buffers_are_refused() {
        assert!(need("it", 3, 3).is_ok());
        assert!(matches!(
            need("it", 2, 3),
            Err(Error::Buffer {
                got: 2,
                needed: 3,
                ..
            })
        ));
    }
}
