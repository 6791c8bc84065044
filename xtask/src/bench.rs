//! `bench`: every criterion benchmark of the workspace.

use anyhow::Result;

use crate::process;

pub(crate) fn run(arguments: &[String]) -> Result<()> {
    process::run(
        process::cargo()
            .args(["bench", "--workspace"])
            .args(arguments),
    )
}
