//! Identifiers. Each is a type of its own, so that none is passed for another.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{Error, ErrorKind, Result};

/// Name of a task: 1 to 128 characters out of `A-Z a-z 0-9 . _ -`.
///
/// Task files are downloaded data, so a name is checked where it enters; it can then be printed
/// and stored without surprises. It is never joined into a path.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct TaskId(String);

impl TaskId {
    /// Checks and wraps `name`.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] if the name is empty, too long or holds another character.
    pub fn new(name: impl Into<String>) -> Result<Self> {
        let name = name.into();
        let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        if (1..=128).contains(&name.len()) && name.chars().all(allowed) {
            return Ok(Self(name));
        }
        Err(Error::new(
            ErrorKind::Config,
            "dart-core",
            "task id",
            "a task id is 1 to 128 characters of A-Z a-z 0-9 . _ -",
        )
        .with(
            "id",
            name.chars().take(140).collect::<String>().escape_debug(),
        ))
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for TaskId {
    type Error = Error;

    fn try_from(name: String) -> Result<Self> {
        Self::new(name)
    }
}

impl From<TaskId> for String {
    fn from(id: TaskId) -> Self {
        id.0
    }
}

/// Identity of one trajectory, made by whoever requests the rollout, so that every later write
/// of it can be repeated safely. Written as 32 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct TrajectoryId(pub u128);

impl fmt::Display for TrajectoryId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Debug for TrajectoryId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TrajectoryId({self})")
    }
}

impl std::str::FromStr for TrajectoryId {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        u128::from_str_radix(text, 16)
            .ok()
            .filter(|_| text.len() == 32)
            .map(Self)
            .ok_or_else(|| {
                Error::new(
                    ErrorKind::Config,
                    "dart-core",
                    "trajectory id",
                    "a trajectory id is 32 hexadecimal digits",
                )
                .with(
                    "id",
                    text.chars().take(40).collect::<String>().escape_debug(),
                )
            })
    }
}

impl TryFrom<String> for TrajectoryId {
    type Error = Error;

    fn try_from(text: String) -> Result<Self> {
        text.parse()
    }
}

impl From<TrajectoryId> for String {
    fn from(id: TrajectoryId) -> Self {
        id.to_string()
    }
}

macro_rules! counter {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(
            Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
        )]
        #[serde(transparent)]
        pub struct $name(pub u64);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

counter!(
    /// Counts published weights; 0 is the policy that the run starts with.
    PolicyVersion
);
counter!(
    /// One group: the rollouts of one request for one task instance.
    GroupId
);
counter!(
    /// One batch, counted by the curator from 0.
    BatchId
);

impl PolicyVersion {
    /// The version published next.
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }

    /// How many versions `self` is ahead of `older`; 0 if it is not.
    pub const fn since(self, older: Self) -> u64 {
        self.0.saturating_sub(older.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn task_ids_are_checked() {
        assert!(TaskId::new("click-button.0017").is_ok());
        for bad in ["", "a/b", "../x", "a b", "é", &"x".repeat(129)] {
            assert_eq!(
                TaskId::new(bad).unwrap_err().kind(),
                ErrorKind::Config,
                "{bad:?}"
            );
        }
        assert!(serde_json::from_str::<TaskId>("\"a/b\"").is_err());
    }

    #[test]
    fn trajectory_ids_round_trip() {
        let id = TrajectoryId(0x00ab_cdef);
        assert_eq!(id.to_string().parse::<TrajectoryId>().unwrap(), id);
        assert!("abc".parse::<TrajectoryId>().is_err());
    }
}
