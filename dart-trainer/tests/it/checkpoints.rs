//! Checkpoints and what can happen to them.

use std::{fs, path::Path};

use dart_core::{Error, ErrorKind, PolicyVersion};
use dart_trainer::CheckpointDir;

fn write(dir: &CheckpointDir, version: u64) {
    dir.write(PolicyVersion(version), |path| {
        fill(path, version);
        Ok(())
    })
    .unwrap();
}

fn fill(path: &Path, version: u64) {
    fs::write(path.join("weights.bin"), version.to_le_bytes().repeat(1000)).unwrap();
    fs::write(path.join("state.json"), format!("{{\"v\":{version}}}")).unwrap();
}

fn newest(dir: &CheckpointDir) -> Option<u64> {
    Some(dir.newest_valid().unwrap()?.version.0)
}

fn names(root: &Path) -> Vec<String> {
    let mut names: Vec<_> = fs::read_dir(root)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn the_newest_is_found_and_old_ones_go() {
    let root = tempfile::tempdir().unwrap();
    let dir = CheckpointDir::open(root.path().join("checkpoints"), 2).unwrap();
    assert!(dir.is_empty().unwrap());
    assert_eq!(newest(&dir), None);
    for version in [1, 5, 12] {
        write(&dir, version);
        assert_eq!(newest(&dir), Some(version));
    }
    let path = root.path().join("checkpoints");
    assert_eq!(names(&path), ["LATEST", "v000005", "v000012"]);
    let found = dir.newest_valid().unwrap().unwrap();
    assert_eq!(
        (found.path.as_path(), found.warning),
        (path.join("v000012").as_path(), None)
    );
    assert_eq!(
        CheckpointDir::check(&path.join("v000005"))
            .unwrap()
            .version
            .0,
        5
    );
    write(&dir, 12);
    assert_eq!(newest(&dir), Some(12), "the same version again");
    let draft = dir.begin(PolicyVersion(13)).unwrap();
    fill(draft.path(), 13);
    assert_eq!(newest(&dir), Some(12));
    assert_eq!(draft.commit().unwrap(), path.join("v000013"));
    assert_eq!(newest(&dir), Some(13));
}

#[test]
fn damage_is_seen_and_named() {
    type Damage = fn(&Path);
    let damages: [(&str, Damage); 6] = [
        ("weights.bin", |p| {
            let mut bytes = fs::read(p.join("weights.bin")).unwrap();
            bytes[4000] ^= 1;
            fs::write(p.join("weights.bin"), bytes).unwrap();
        }),
        ("weights.bin", |p| {
            let bytes = fs::read(p.join("weights.bin")).unwrap();
            fs::write(p.join("weights.bin"), &bytes[..100]).unwrap();
        }),
        ("state.json", |p| {
            fs::remove_file(p.join("state.json")).unwrap();
        }),
        ("manifest.json", |p| {
            fs::write(p.join("manifest.json"), "{").unwrap();
        }),
        ("manifest.json", |p| {
            fs::remove_file(p.join("manifest.json")).unwrap();
        }),
        ("../x", |p| {
            let text = fs::read_to_string(p.join("manifest.json")).unwrap();
            fs::write(p.join("manifest.json"), text.replace("state.json", "../x")).unwrap();
        }),
    ];
    for (name, damage) in damages {
        let root = tempfile::tempdir().unwrap();
        let dir = CheckpointDir::open(root.path(), 3).unwrap();
        write(&dir, 1);
        write(&dir, 2);
        damage(&root.path().join("v000002"));
        let found = dir.newest_valid().unwrap().unwrap();
        assert_eq!(found.version.0, 1, "{name}");
        let warning = found.warning.unwrap();
        assert!(
            warning.contains(name) && !warning.contains('\n'),
            "{warning}"
        );
        let error = CheckpointDir::check(&root.path().join("v000002")).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Storage);
        damage(&root.path().join("v000001"));
        assert_eq!(newest(&dir), None, "both are damaged");
    }
}

#[test]
fn a_version_that_latest_does_not_name_never_happened() {
    let root = tempfile::tempdir().unwrap();
    let dir = CheckpointDir::open(root.path(), 3).unwrap();
    write(&dir, 1);
    write(&dir, 2);
    fs::write(root.path().join("LATEST"), "v000001").unwrap();
    assert_eq!(newest(&dir), Some(1));
    write(&dir, 2);
    assert_eq!(newest(&dir), Some(2));
    for garbage in ["", "v2", "v000009", "../etc"] {
        fs::write(root.path().join("LATEST"), garbage).unwrap();
        let found = dir.newest_valid().unwrap().unwrap();
        assert_eq!(found.version.0, 2);
        assert!(found.warning.unwrap().contains("LATEST"));
    }
}

#[test]
fn a_pointer_of_ones_own_decides() {
    let root = tempfile::tempdir().unwrap();
    let dir = CheckpointDir::open(root.path(), 2).unwrap();
    for version in [1, 2] {
        write(&dir, version);
    }
    let draft = dir.begin(PolicyVersion(3)).unwrap();
    fill(draft.path(), 3);
    let sealed = draft.seal().unwrap();
    assert_eq!(sealed.name(), "v000003");
    assert_eq!(sealed.oldest_kept().unwrap(), PolicyVersion(2));
    // Killed before the pointer was written, and after.
    let up_to = |limit| {
        let found = dir.newest_valid_up_to(PolicyVersion(limit)).unwrap();
        found.map(|found| (found.version.0, found.warning.is_some()))
    };
    assert_eq!((newest(&dir), up_to(2)), (Some(2), Some((2, false))));
    assert_eq!(up_to(3), Some((3, false)));
    sealed.publish().unwrap();
    assert_eq!(names(root.path()), ["LATEST", "v000002", "v000003"]);
    fs::write(root.path().join("v000003/state.json"), "torn").unwrap();
    assert_eq!(up_to(3), Some((2, true)));
    assert_eq!(up_to(9), Some((2, true)), "the one it names is gone");
    assert_eq!(up_to(1), None);
}

#[test]
fn an_interrupted_write_leaves_the_old_version() {
    let root = tempfile::tempdir().unwrap();
    let dir = CheckpointDir::open(root.path(), 3).unwrap();
    write(&dir, 1);
    let failure = dir.write(PolicyVersion(2), |path| {
        fill(path, 2);
        Err(Error::new(ErrorKind::Storage, "test", "fill", "disk full"))
    });
    assert!(failure.unwrap_err().to_string().contains("disk full"));
    assert_eq!(names(root.path()), ["LATEST", "v000001"]);
    let nested = dir.write(PolicyVersion(2), |path| {
        fs::create_dir(path.join("nested")).unwrap();
        Ok(())
    });
    assert_eq!(nested.unwrap_err().kind(), ErrorKind::Storage);
    let draft = dir.begin(PolicyVersion(2)).unwrap();
    fill(draft.path(), 2);
    drop(draft);
    assert_eq!(
        names(root.path()),
        ["LATEST", "v000001"],
        "a draft never was"
    );
    // Killed half-way: before the rename, and between setting aside and replacing.
    fs::create_dir(root.path().join(".tmp-v000002")).unwrap();
    fs::rename(
        root.path().join("v000001"),
        root.path().join(".old-v000001"),
    )
    .unwrap();
    // Whoever only looks tidies nothing up: somebody may be writing.
    assert_eq!(newest(&CheckpointDir::look(root.path())), None);
    assert!(root.path().join(".tmp-v000002").exists());
    let again = CheckpointDir::open(root.path(), 3).unwrap();
    assert_eq!(names(root.path()), ["LATEST", "v000001"]);
    assert_eq!(newest(&again), Some(1));
}

#[test]
fn going_back_leaves_the_other_lineage() {
    let root = tempfile::tempdir().unwrap();
    let dir = CheckpointDir::open(root.path(), 3).unwrap();
    for version in [1, 2, 3] {
        write(&dir, version);
    }
    write(&dir, 2);
    assert_eq!(names(root.path()), ["LATEST", "v000001", "v000002"]);
    assert_eq!(newest(&dir), Some(2));
}
