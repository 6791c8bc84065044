//! A phone with a screen that never changes, on a thread of its own.

use std::{sync::mpsc, thread};

use dart_core::{Result, Size};
use dart_env_adb::simulator::{Options, Simulator};

use crate::still::Still;

/// Width and height of its screen.
pub const SCREEN: Size = Size::new(1080, 2400);

/// Starts a phone; gives what to connect to. It lasts as long as the process.
///
/// # Errors
/// `Exhausted` if there is no free port, `Misuse` if the thread cannot run.
pub fn start() -> Result<String> {
    let (serial, started) = mpsc::channel();
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        runtime.expect("a runtime can be made").block_on(async {
            let phone = match Still::new(SCREEN) {
                Ok(still) => Simulator::start(still, Options::default()).await,
                Err(error) => Err(error),
            };
            match phone {
                Ok(phone) => {
                    let _ = serial.send(Ok(phone.serial()));
                    std::future::pending::<()>().await;
                }
                Err(error) => drop(serial.send(Err(error))),
            }
        });
    });
    started.recv().expect("the phone says where it is")
}
