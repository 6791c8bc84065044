//! `DART_FAULT=NAME:COUNT`: the process ends, as by `kill -9`, when it passes the fault point NAME
//! (`*` for any) for the COUNT-th time. Only in debug builds and with the feature `fault-points`.

use std::sync::{
    OnceLock,
    atomic::{AtomicU64, Ordering},
};

use dart_core::fault;

use crate::fault::Fault;

/// The environment variable.
const VARIABLE: &str = "DART_FAULT";

#[derive(Debug, PartialEq, Eq)]
struct Plan {
    name: String,
    count: u64,
}

static PLAN: OnceLock<Plan> = OnceLock::new();
static PASSED: AtomicU64 = AtomicU64::new(0);

/// Reads the variable and arms the points.
///
/// # Errors
/// A [`Fault`] if it is set and cannot be obeyed.
pub(crate) fn arm() -> Result<(), Fault> {
    let Ok(text) = std::env::var(VARIABLE) else {
        return Ok(());
    };
    let plan = parse(&text).ok_or_else(|| {
        Fault::new(format!("{VARIABLE}={text}: not of the form NAME:COUNT"))
            .remedy("write, for example, DART_FAULT=seal.begin:2")
    })?;
    if !fault::ENABLED {
        let message = format!("{VARIABLE} is set, and this build has no fault points");
        return Err(Fault::new(message).remedy("build with --features fault-points"));
    }
    if PLAN.set(plan).is_ok() {
        fault::install(pass);
    }
    Ok(())
}

fn parse(text: &str) -> Option<Plan> {
    let (name, count) = text.split_once(':')?;
    let count = count.parse().ok().filter(|count| *count > 0)?;
    Some(Plan {
        name: name.to_owned(),
        count,
    })
}

fn pass(name: &'static str) {
    let Some(plan) = PLAN.get() else {
        return;
    };
    if (plan.name == "*" || plan.name == name)
        && PASSED.fetch_add(1, Ordering::SeqCst) + 1 == plan.count
    {
        crate::terminal::tell!("fault point {name}: ends here");
        let me = rustix::process::getpid();
        // Nothing runs after this: no destructor, no flush.
        let _ = rustix::process::kill_process(me, rustix::process::Signal::KILL);
        std::process::abort();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plans_are_read() {
        let plan = parse("seal.begin:2").unwrap();
        assert_eq!((plan.name.as_str(), plan.count), ("seal.begin", 2));
        for wrong in ["", "seal.begin", "a:0", "a:x", ":"] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }
}
