//! Debian's `adb` and our client do the same with the simulated phone.

use std::time::{Duration, SystemTime};

use dart_core::{ErrorKind, Result};
use dart_env_adb::{
    client::{AdbServer, WaitFor},
    quote,
    simulator::{Auth, Options},
    wire::{
        devices::{DeviceInfo, DeviceState},
        screencap,
    },
};
use rand::{RngCore, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::lab::{Lab, with_adb};

fn kind<T: std::fmt::Debug>(result: Result<T>) -> ErrorKind {
    result.unwrap_err().kind()
}

#[test]
fn the_list_of_devices_shows_the_phone() {
    with_adb("devices", || async {
        let lab = Lab::apart(Options::default()).await;
        let server = lab.own.server();
        assert!(server.version().await.unwrap() >= 41);
        let mut tracker = server.track_devices().await.unwrap();
        let limit = Duration::from_secs(5);
        assert!(tracker.next(limit).await.unwrap().is_empty());
        let said = lab.adb(&["connect", &lab.phone.serial()]).await;
        assert!(said.text().starts_with("connected to"), "{said:?}");
        let listed = lab.adb(&["devices", "-l"]).await.text();
        assert!(
            listed.contains("device product:dart_phone model:dart_phone"),
            "{listed}"
        );
        lab.target().wait_for(WaitFor::Device, limit).await.unwrap();
        let devices = server.devices().await.unwrap();
        assert_eq!(devices[0].serial, lab.phone.serial());
        assert_eq!(devices[0].state, DeviceState::Device);
        assert_eq!(devices[0].properties["model"], "dart_phone");
        let ready = |info: &DeviceInfo| info.state == DeviceState::Device;
        while !tracker.next(limit).await.unwrap().iter().any(ready) {}
        assert!(lab.target().features().await.unwrap().contains("shell_v2"));
        server.disconnect(&lab.phone.serial()).await.unwrap();
        assert!(server.devices().await.unwrap().is_empty());
        assert_eq!(
            kind(server.disconnect("127.0.0.1:1").await),
            ErrorKind::Disconnected
        );
        while !tracker.next(limit).await.unwrap().is_empty() {}
        let nothing_new = tracker.next(Duration::from_millis(50)).await;
        assert_eq!(kind(nothing_new), ErrorKind::Timeout);
    });
}

#[test]
fn shells_give_output_errors_and_exit_codes() {
    with_adb("shell", || async {
        let lab = Lab::new(Options::default()).await;
        let target = lab.target();
        let lines = [
            ("echo hi", 0, "hi\n", ""),
            ("exit 7", 7, "", ""),
            ("echo a; nonsense", 127, "a\n", "inaccessible or not found"),
            ("false || echo b && exit 3", 3, "b\n", ""),
            ("true", 0, "", ""),
        ];
        for (line, code, stdout, stderr) in lines {
            let ours = target.shell(line).await.unwrap();
            let theirs = lab.adb_phone(&["shell", line]).await;
            assert_eq!(i32::from(ours.code), code, "{line}");
            assert_eq!(theirs.code, code, "{line}: {theirs:?}");
            assert_eq!(ours.text(), stdout);
            assert_eq!(theirs.text(), stdout);
            let said = String::from_utf8_lossy(&ours.stderr).into_owned();
            assert!(
                said.contains(stderr) && theirs.stderr.contains(stderr),
                "{said} {theirs:?}"
            );
        }
        for word in [
            "it's",
            "$HOME \"x\" `y`",
            "a;b&&c|d",
            "100%s",
            "caf\u{e9} \u{4f60}",
            "\\n\n",
        ] {
            let line = quote::join(&["echo", "-n", word]);
            assert_eq!(target.shell(&line).await.unwrap().text(), word);
        }
        let mut output = Vec::new();
        target.exec("echo out", &mut output, 100).await.unwrap();
        assert_eq!(output, b"out\n");
    });
}

#[test]
fn pictures_are_the_same_by_every_way() {
    with_adb("screencap", || async {
        let lab = Lab::new(Options::default()).await;
        let target = lab.target();
        let mut raw = Vec::new();
        target.exec("screencap", &mut raw, 1 << 20).await.unwrap();
        let frame = screencap::raw(&raw).unwrap();
        let theirs = lab.adb_phone(&["exec-out", "screencap", "-p"]).await;
        assert_eq!(screencap::png(&theirs.stdout).unwrap(), frame);
        let theirs = lab.adb_phone(&["exec-out", "screencap"]).await;
        assert_eq!(screencap::raw(&theirs.stdout).unwrap(), frame);
        assert_eq!(target.framebuffer().await.unwrap(), frame);
        let before = frame;
        assert_eq!(
            lab.adb_phone(&["shell", "input", "tap", "25", "35"])
                .await
                .code,
            0
        );
        assert_ne!(target.framebuffer().await.unwrap(), before, "a tap shows");
    });
}

#[test]
fn sixty_four_mebibytes_come_back_as_they_went() {
    with_adb("push and pull", || async {
        let lab = Lab::new(Options::default()).await;
        let target = lab.target();
        let mut content = vec![0; 64 << 20];
        ChaCha8Rng::seed_from_u64(1).fill_bytes(&mut content);
        let hash = blake3::hash(&content);
        target
            .push(&content, "/sdcard/ours.bin", 0o644)
            .await
            .unwrap();
        let stat = target.stat("/sdcard/ours.bin").await.unwrap();
        assert_eq!((stat.size as usize, stat.mode), (content.len(), 0o100_644));
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let age = now.unwrap().as_secs() - u64::from(stat.time);
        assert!(age < 100, "it is as old as its content: {age} s");
        let back = target
            .pull("/sdcard/ours.bin", content.len())
            .await
            .unwrap();
        assert_eq!(blake3::hash(&back), hash);

        let folder = tempfile::tempdir().unwrap();
        let (here, there) = (folder.path().join("a.bin"), folder.path().join("b.bin"));
        let name = |path: &std::path::Path| path.to_str().unwrap().to_owned();
        // What we pushed they pull, what they push we pull.
        let pulled = lab
            .adb_phone(&["pull", "/sdcard/ours.bin", &name(&here)])
            .await;
        assert_eq!(pulled.code, 0, "{pulled:?}");
        assert_eq!(blake3::hash(&std::fs::read(&here).unwrap()), hash);
        let pushed = lab
            .adb_phone(&["push", &name(&here), "/sdcard/theirs.bin"])
            .await;
        assert_eq!(pushed.code, 0, "{pushed:?}");
        let length = target
            .pull_to("/sdcard/theirs.bin", &there, content.len())
            .await;
        assert_eq!(length.unwrap(), content.len());
        assert_eq!(blake3::hash(&std::fs::read(&there).unwrap()), hash);
        let written = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
        let file = std::fs::File::options().append(true).open(&there).unwrap();
        file.set_modified(written).unwrap();
        target
            .push_file(&there, "/sdcard/d/again.bin", 0o600)
            .await
            .unwrap();
        let stat = target.stat("/sdcard/d/again.bin").await.unwrap();
        assert_eq!((stat.time, stat.mode), (1_700_000_000, 0o100_600));
        let names = target.list("/sdcard").await.unwrap();
        let names: Vec<_> = names.iter().map(|entry| entry.name.as_str()).collect();
        assert_eq!(names, ["d", "ours.bin", "theirs.bin"]);
    });
}

#[test]
fn files_that_are_not_there_or_too_long_are_errors() {
    with_adb("files", || async {
        let lab = Lab::new(Options::default()).await;
        let target = lab.target();
        assert!(!target.stat("/nowhere").await.unwrap().exists());
        assert!(target.stat("/sdcard").await.unwrap().is_folder());
        assert_eq!(
            kind(target.pull("/nowhere", 10).await),
            ErrorKind::Unsupported
        );
        assert_eq!(
            kind(target.push(b"x", "/sdcard", 0o644).await),
            ErrorKind::Unsupported
        );
        target
            .push(&[5; 11], "/sdcard/eleven", 0o644)
            .await
            .unwrap();
        assert_eq!(
            kind(target.pull("/sdcard/eleven", 10).await),
            ErrorKind::Protocol
        );
        let folder = tempfile::tempdir().unwrap();
        let local = folder.path().join("x");
        let pulled = target.pull_to("/sdcard/eleven", &local, 10).await;
        assert_eq!(kind(pulled), ErrorKind::Protocol);
        assert_eq!(
            std::fs::read_dir(folder.path()).unwrap().count(),
            0,
            "no part is left"
        );
        let nowhere = folder.path().join("no/such");
        let pulled = target.pull_to("/sdcard/eleven", &nowhere, 99).await;
        assert_eq!(kind(pulled), ErrorKind::Storage);
        assert!(target.push(b"", "/sdcard/empty", 0o644).await.is_ok());
        assert!(target.pull("/sdcard/empty", 10).await.unwrap().is_empty());
    });
}

#[test]
fn a_pulled_file_replaces_a_link_and_does_not_follow_it() {
    with_adb("pull over a link", || async {
        let lab = Lab::new(Options::default()).await;
        lab.target().push(b"new", "/sdcard/a", 0o644).await.unwrap();
        let folder = tempfile::tempdir().unwrap();
        let (victim, link) = (folder.path().join("victim"), folder.path().join("link"));
        std::fs::write(&victim, b"old").unwrap();
        std::os::unix::fs::symlink(&victim, &link).unwrap();
        lab.target().pull_to("/sdcard/a", &link, 10).await.unwrap();
        assert_eq!(std::fs::read(&victim).unwrap(), b"old");
        assert_eq!(std::fs::read(&link).unwrap(), b"new");
    });
}

#[test]
fn forwards_carry_bytes() {
    with_adb("forward", || async {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let lab = Lab::new(Options::default()).await;
        let target = lab.target();
        let port = target.forward("tcp:0", "tcp:9").await.unwrap().unwrap();
        let mut socket = tokio::net::TcpStream::connect(("127.0.0.1", port))
            .await
            .unwrap();
        socket.write_all(b"echo").await.unwrap();
        let mut back = [0; 4];
        socket.read_exact(&mut back).await.unwrap();
        assert_eq!(&back, b"echo");
        let local = format!("tcp:{port}");
        target.remove_forward(&local).await.unwrap();
        // That a listener is missing does not mean that the device is.
        let again = target.remove_forward(&local).await;
        assert_eq!(kind(again), ErrorKind::Unsupported);
        assert_eq!(target.reverse("tcp:7", "tcp:8").await.unwrap(), None);
        assert_eq!(target.reverse("tcp:0", "tcp:8").await.unwrap(), Some(12345));
        target.remove_reverse("tcp:7").await.unwrap();
    });
}

#[test]
fn rights_and_restarts_are_asked_for() {
    with_adb("root and reboot", || async {
        let lab = Lab::new(Options::default()).await;
        let target = lab.target();
        assert!(target.root().await.unwrap().contains("root"));
        assert!(target.unroot().await.unwrap().contains("root"));
        assert!(target.remount().await.unwrap().contains("succeeded"));
        target.reboot(None).await.unwrap();
        assert!(target.shell("true").await.is_err(), "it restarts");
        let limit = Duration::from_secs(10);
        while lab
            .own
            .server()
            .connect(&lab.phone.serial())
            .await
            .is_ok_and(|w| !w.contains("connected"))
        {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        target.wait_for(WaitFor::Device, limit).await.unwrap();
        assert_eq!(target.shell("echo up").await.unwrap().text(), "up\n");
        let never = target
            .wait_for(WaitFor::Recovery, Duration::from_millis(100))
            .await;
        assert_eq!(kind(never), ErrorKind::Timeout);
    });
}

#[test]
fn a_phone_that_refuses_the_key_is_unauthorized() {
    with_adb("unauthorized", || async {
        let options = Options {
            auth: Auth::Deny,
            ..Options::default()
        };
        let lab = Lab::apart(options).await;
        let _ = lab.own.server().connect(&lab.phone.serial()).await;
        let states = async {
            loop {
                let devices = lab.own.server().devices().await.unwrap();
                if devices.iter().any(|d| d.state == DeviceState::Unauthorized) {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(15), states)
            .await
            .unwrap();
        let error = lab.target().shell("true").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unauthorized);
        assert!(error.to_string().contains("accept the key"), "{error}");
        let said = lab.adb_phone(&["shell", "true"]).await;
        assert!(
            said.code == 1 && said.stderr.contains("unauthorized"),
            "{said:?}"
        );
    });
}

#[test]
fn a_phone_that_has_to_allow_the_key_comes_in_the_end() {
    with_adb("key", || async {
        let options = Options {
            auth: Auth::Accept,
            ..Options::default()
        };
        let lab = Lab::new(options).await;
        assert_eq!(lab.target().shell("exit 4").await.unwrap().code, 4);
    });
}

#[test]
fn a_phone_that_goes_is_offline_or_gone_and_both_are_retryable() {
    with_adb("offline", || async {
        let lab = Lab::new(Options::default()).await;
        lab.phone.faults().silent = true;
        lab.phone.cut();
        for _ in 0..30 {
            let error = lab.impatient().shell("true").await.unwrap_err();
            assert!(error.is_retryable(), "{error}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let said = lab.adb_phone(&["shell", "true"]).await;
        assert!(
            said.code == 1 && said.stderr.contains("offline"),
            "{said:?}"
        );
        let error = lab.impatient().shell("true").await.unwrap_err();
        assert!(error.to_string().contains("offline"), "{error}");
    });
}

#[test]
fn what_is_not_there_is_named() {
    with_adb("not found", || async {
        let lab = Lab::apart(Options::default()).await;
        let error = lab
            .own
            .server()
            .target("nosuch")
            .unwrap()
            .shell("true")
            .await
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Disconnected);
        assert!(
            error.to_string().contains("device 'nosuch' not found"),
            "{error}"
        );
        assert_eq!(kind(lab.own.server().target("a b")), ErrorKind::Config);
        let nobody = AdbServer::new("127.0.0.1", 1).version().await.unwrap_err();
        assert_eq!(nobody.kind(), ErrorKind::Disconnected);
        assert!(
            nobody
                .to_string()
                .contains("no ADB server answers at 127.0.0.1:1"),
            "{nobody}"
        );
    });
}

#[test]
fn an_own_server_ends_with_its_owner() {
    with_adb("own server", || async {
        let lab = Lab::apart(Options::default()).await;
        let (server, home) = (lab.own.server().clone(), lab.own.home().to_owned());
        assert!(home.exists());
        lab.own.stop().await.unwrap();
        assert!(server.version().await.is_err());
        assert!(!home.exists());
    });
}
