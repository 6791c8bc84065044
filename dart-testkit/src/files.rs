//! Folders that a test copies.

use std::{fs, io, path::Path};

/// Copies the folder `from` with all that is in it, as a crash leaves it: whoever writes to it is not
/// asked. `to` may be there already.
///
/// # Errors
/// The first thing that cannot be read or written.
pub fn copy_folder(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_folder(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_has_all_that_the_original_has() {
        let folder = tempfile::tempdir().unwrap();
        let (from, to) = (folder.path().join("from"), folder.path().join("to"));
        fs::create_dir_all(from.join("a/b")).unwrap();
        fs::write(from.join("a/b/c"), "1").unwrap();
        fs::write(from.join("d"), "2").unwrap();
        copy_folder(&from, &to).unwrap();
        copy_folder(&from, &to).unwrap();
        assert_eq!(fs::read_to_string(to.join("a/b/c")).unwrap(), "1");
        assert_eq!(fs::read_to_string(to.join("d")).unwrap(), "2");
        assert!(copy_folder(&folder.path().join("none"), &to).is_err());
    }
}
